# cmake --install: headers, libkvrm.so, libkvrm.a, how find_package(kvrm) and pkg-config find them,
# and what a program's author reads: the page on embedding, the frame's grammar, the examples. Included where kvrm_shared and kvrm_static are made.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvrm)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kvrm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/docs/embedding.md ${PROJECT_SOURCE_DIR}/docs/frame.md
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/kvrm)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/kvrm
  FILES_MATCHING PATTERN "*.c" PATTERN "*.cc" PATTERN "*.h" PATTERN CMakeLists.txt)
install(TARGETS kvrm_shared kvrm_static EXPORT kvrmTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT kvrmTargets NAMESPACE kvrm:: DESTINATION ${package_dir})

write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/kvrmConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/kvrmConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/kvrmConfigVersion.cmake DESTINATION ${package_dir})

# Relative to where the file lies, so that a prefix given to cmake --install holds, and the tree may
# be moved.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY
  ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig OUTPUT_VARIABLE pc_prefix)
configure_file(${PROJECT_SOURCE_DIR}/cmake/kvrm.pc.in kvrm.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/kvrm.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
