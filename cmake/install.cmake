# Installs the headers, both libraries, the CMake package and the pkg-config file.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tileglu)
install(TARGETS tileglu tileglu_static EXPORT tileglu-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/tileglu/tileglu.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tileglu)
get_property(have_model GLOBAL PROPERTY TILEGLU_HAVE_MODEL)
if(have_model)
  install(FILES include/tileglu/model.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tileglu)
endif()
install(EXPORT tileglu-targets NAMESPACE tileglu:: DESTINATION ${package_dir})

configure_package_config_file(cmake/tileglu-config.cmake.in tileglu-config.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(tileglu-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tileglu-config.cmake
              ${PROJECT_BINARY_DIR}/tileglu-config-version.cmake
  DESTINATION ${package_dir})

# The prefix is found from the file's own place, so the tree can be moved.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(TILEGLU_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH upwards /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  set(TILEGLU_PC_PREFIX "\${pcfiledir}/${upwards}")
endif()
foreach(kind LIB INCLUDE)
  if(IS_ABSOLUTE ${CMAKE_INSTALL_${kind}DIR})
    set(TILEGLU_PC_${kind}DIR ${CMAKE_INSTALL_${kind}DIR})
  else()
    set(TILEGLU_PC_${kind}DIR "\${prefix}/${CMAKE_INSTALL_${kind}DIR}")
  endif()
endforeach()
get_property(needs GLOBAL PROPERTY TILEGLU_NEEDS)
set(TILEGLU_PC_PRIVATE "")
foreach(library IN LISTS needs)
  if(library STREQUAL "Threads::Threads")
    set(library pthread)
  endif()
  if(IS_ABSOLUTE "${library}")
    string(APPEND TILEGLU_PC_PRIVATE " ${library}")
  else()
    string(APPEND TILEGLU_PC_PRIVATE " -l${library}")
  endif()
endforeach()
configure_file(cmake/tileglu.pc.in tileglu.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tileglu.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
