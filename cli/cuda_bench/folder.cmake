# cmake -DOUT=folder -DPROGRAM=file -DLIBRARY=file -P folder.cmake: copies both, and the
# shared libraries that they need beyond the C library's own; no links among them.
file(MAKE_DIRECTORY ${OUT})
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${PROGRAM} LIBRARIES ${LIBRARY}
  RESOLVED_DEPENDENCIES_VAR needed UNRESOLVED_DEPENDENCIES_VAR missing
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|gcc_s)\\.so")
if(missing)
  message(FATAL_ERROR "not found: ${missing}")
endif()
foreach(file IN LISTS PROGRAM LIBRARY needed)
  get_filename_component(name ${file} NAME)
  file(REMOVE ${OUT}/${name})
  file(COPY_FILE ${file} ${OUT}/${name})
  file(CHMOD ${OUT}/${name} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
       GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
endforeach()
