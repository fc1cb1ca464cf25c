# One list per folder: kvrm_library() names a folder's sources and the folders it may include,
# kvrm_tests() the tests beside them, kvrm_fuzz() a fuzz target.

find_package(Threads REQUIRED)

add_library(kvrm_flags INTERFACE)
target_include_directories(kvrm_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
# Contract num-1, rule 9: fused multiply-add only where it is written, no fast-math.
target_compile_options(kvrm_flags INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers
  -ffp-contract=off -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(kvrm_flags INTERFACE -Wthread-safety)
else()
  # g++ 12 reports false positives for these in inlined std::string and std::vector code.
  target_compile_options(kvrm_flags INTERFACE -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds
    -Wno-psabi -Wno-maybe-uninitialized)
endif()
target_compile_definitions(kvrm_flags INTERFACE KVRM_CHECK_TIER=${KVRM_CHECK_TIER})
target_link_libraries(kvrm_flags INTERFACE Threads::Threads)

# Compiled into pager and frame; its library is not needed.
find_path(KVRM_XXHASH_INCLUDE_DIR xxhash.h)
if(NOT KVRM_XXHASH_INCLUDE_DIR)
  message(FATAL_ERROR "xxhash.h was not found: install libxxhash-dev (Debian, Ubuntu), or set "
    "KVRM_XXHASH_INCLUDE_DIR to the folder that holds it.")
endif()
target_include_directories(kvrm_flags SYSTEM INTERFACE ${KVRM_XXHASH_INCLUDE_DIR})
if(KVRM_SANITIZE)
  target_compile_options(kvrm_flags INTERFACE -fsanitize=${KVRM_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(kvrm_flags INTERFACE -fsanitize=${KVRM_SANITIZE})
endif()

# Headers are read once for eight files. Names in unnamed namespaces must then differ within a folder;
# a file with options of its own stays alone. g++ takes what such a file defines for a header's.
if(KVRM_UNITY)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 8 CACHE STRING "files compiled together")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(kvrm_flags INTERFACE -Wno-subobject-linkage)
  endif()
endif()

# Libraries and fuzz targets report which branches an input reached; tests have no use for it.
if(KVRM_FUZZ)
  set(KVRM_COVERAGE_OPTIONS -fsanitize=fuzzer-no-link)
endif()

# kvrm_library(<folder> SOURCES a.cc ... DEPS <folder> ... LIBS <target> ...)
function(kvrm_library folder)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_library(kvrm_${folder} STATIC ${ARG_SOURCES})
  target_link_libraries(kvrm_${folder} PUBLIC kvrm_flags)
  target_compile_options(kvrm_${folder} PRIVATE ${KVRM_COVERAGE_OPTIONS})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(kvrm_${folder} PUBLIC kvrm_${dep})
  endforeach()
  target_link_libraries(kvrm_${folder} PUBLIC ${ARG_LIBS})
endfunction()

# kvrm_tests(<folder> SOURCES x_test.cc ... DEPS <folder> ... LIBS <target> ...
#            [OPTIMISED] [RESULTS <name> FIXTURE <name>])
# One test binary a folder; each gtest case is a ctest case, named Suite.Law. With RESULTS each leaves
# an XML file below tests/<name> of the build folder; tests that require FIXTURE read them.
# With sanitizers a binary is one ctest case, named after its folder: a process a case would double
# the time, and cases that follow one another in a process show what one leaves behind.
# What a test calls is optimised, the test itself less: half of a build's time is tests, and of a
# test file's compile with sanitizers (clang-19, 2-core Xeon, 2026-11) 5.3 s at -O1 become 1.9 s.
# OPTIMISED: the tests do most of the work themselves (references, oracles).
# No precompiled headers: they save 0.6 s a file, but a second clone, which finds all else in ccache,
# compiles every file that uses one again (ccache 4.7, sloppiness pch_defines,time_macros).
# A folder that waits more than it computes says add_compile_options(${KVRM_WAITING_OPTIONS}):
# src/server/http_session.cc with sanitizers takes 7.2 s at -O1, 4.1 s at -O0.
if(KVRM_SANITIZE)
  set(KVRM_TEST_OPTIONS -O0 -g0)
  set(KVRM_WAITING_OPTIONS -O0)
elseif(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
  set(KVRM_TEST_OPTIONS -O1)
  set(KVRM_WAITING_OPTIONS -O1)
endif()
function(kvrm_tests folder)
  if(NOT KVRM_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "OPTIMISED" "TIMEOUT;RESULTS;FIXTURE" "SOURCES;DEPS;LIBS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set(results)
  set(fixture)
  if(ARG_RESULTS)
    set(results XML_OUTPUT_DIR ${PROJECT_BINARY_DIR}/tests/${ARG_RESULTS})
    set(fixture FIXTURES_SETUP ${ARG_FIXTURE})
  endif()
  add_executable(${folder}_tests ${ARG_SOURCES})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${folder}_tests PRIVATE kvrm_${dep})
  endforeach()
  target_link_libraries(${folder}_tests PRIVATE ${ARG_LIBS} kvrm_flags GTest::gtest GTest::gmock GTest::gtest_main)
  if(NOT ARG_OPTIMISED)
    target_compile_options(${folder}_tests PRIVATE ${KVRM_TEST_OPTIONS})
  endif()
  target_compile_definitions(${folder}_tests PRIVATE KVRM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(KVRM_SANITIZE)
    add_test(NAME ${folder} COMMAND ${folder}_tests)
    list(LENGTH ARG_SOURCES cost)  # the longest first, or the last one runs alone
    math(EXPR cost "${cost} * ${ARG_TIMEOUT}")
    set_tests_properties(${folder} PROPERTIES TIMEOUT 600 COST ${cost})
    return()
  endif()
  gtest_discover_tests(${folder}_tests DISCOVERY_TIMEOUT 60 ${results}
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} ${fixture})
endfunction()

# kvrm_fuzz(<name> SOURCES x_fuzz.cc DEPS <folder> ...): built only by preset `fuzz` (clang).
function(kvrm_fuzz name)
  if(NOT KVRM_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_executable(fuzz_${name} ${ARG_SOURCES})
  target_compile_options(fuzz_${name} PRIVATE ${KVRM_COVERAGE_OPTIONS})
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer,address,undefined)
  foreach(dep ${ARG_DEPS})
    target_link_libraries(fuzz_${name} PRIVATE kvrm_${dep})
  endforeach()
  target_link_libraries(fuzz_${name} PRIVATE ${ARG_LIBS} kvrm_flags)
endfunction()
