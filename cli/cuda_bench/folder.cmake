# cmake -DOUT=folder -DPROGRAM=file -DLIBRARY=file -P folder.cmake: copies both, and the
# shared libraries that they need beyond the C library's own.
file(MAKE_DIRECTORY ${OUT})
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${PROGRAM} LIBRARIES ${LIBRARY}
  RESOLVED_DEPENDENCIES_VAR needed UNRESOLVED_DEPENDENCIES_VAR missing
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|gcc_s)\\.so")
if(missing)
  message(FATAL_ERROR "not found: ${missing}")
endif()
file(COPY ${PROGRAM} ${LIBRARY} ${needed} DESTINATION ${OUT} FOLLOW_SYMLINK_CHAIN)
