# find_package(kvrm): kvrm::kvrm is the shared library, kvrm::static the archive.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/kvrmTargets.cmake)
