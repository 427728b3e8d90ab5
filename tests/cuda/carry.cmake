# cmake -DFILES=a;b -DOUT=folder -P carry.cmake: copies programs and the shared libraries
# that they need beyond the C library's own into one folder.
file(MAKE_DIRECTORY ${OUT})
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${FILES}
  RESOLVED_DEPENDENCIES_VAR libraries UNRESOLVED_DEPENDENCIES_VAR missing
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|gcc_s)\\.so")
if(missing)
  message(FATAL_ERROR "not found: ${missing}")
endif()
file(COPY ${FILES} ${libraries} DESTINATION ${OUT} FOLLOW_SYMLINK_CHAIN)
message(STATUS "in ${OUT}: ${FILES} ${libraries}")
