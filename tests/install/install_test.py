"""libkvrm configured alone, installed, and used from its prefix only: by CMake, by pkg-config, by the
program of docs/embedding.md."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = pathlib.Path(os.environ.get("KVRM_INSTALL_WORK") or tempfile.mkdtemp())
PREFIX = WORK / "prefix"
CMAKE = os.environ.get("CMAKE", "cmake")
# What the rest of the project needs; here none of it may be found.
ABSENT = ["Boost", "fmt", "GTest", "prometheus-cpp", "CLI11", "benchmark", "Python3", "PkgConfig"]
SYSTEM_LIBRARIES = re.compile(r"(libc|libm|libstdc\+\+|libgcc_s|libpthread|ld-linux[-\w]*)\.so\.\d+$")


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\n{result.stdout}\n{result.stderr}")
    return result.stdout


def cc():
    return os.environ.get("CC", "cc")


def cxx():
    return os.environ.get("CXX", "c++")


def pkg_config(*options):
    environment = {**os.environ, "PKG_CONFIG_PATH": "", "PKG_CONFIG_LIBDIR": str(library_dir() / "pkgconfig")}
    return run("pkg-config", *options, "kvrm", env=environment).split()


def library_dir():
    return next(PREFIX.rglob("libkvrm.so")).parent


def setUpModule():
    launcher = os.environ.get("KVRM_LAUNCHER")
    run(CMAKE, "-S", ROOT, "-B", WORK / "heart", "-DKVRM_HEART_ONLY=ON", "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DCMAKE_INSTALL_PREFIX=/nowhere",
        *([f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}"] if launcher else []),
        *[f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ABSENT])
    run(CMAKE, "--build", WORK / "heart", "--parallel", "2")
    shutil.rmtree(PREFIX, ignore_errors=True)
    run(CMAKE, "--install", WORK / "heart", "--prefix", PREFIX)


class InstallTest(unittest.TestCase):
    def test_exports_are_exactly_the_list(self):
        listed = (ROOT / "src/capi/exports.txt").read_text().split()
        lines = run("nm", "-D", "--defined-only", library_dir() / "libkvrm.so").splitlines()
        self.assertEqual(sorted(line.split()[-1] for line in lines), listed)

    def test_header_declares_what_is_exported(self):
        listed = (ROOT / "src/capi/exports.txt").read_text().split()
        header = (PREFIX / "include/kvrm/kvrm.h").read_text()
        self.assertEqual(sorted(set(re.findall(r"\b(kvrm_\w+)\(", header))), listed)

    def test_needs_system_libraries_only(self):
        lines = run("readelf", "-d", library_dir() / "libkvrm.so").splitlines()
        needed = [re.search(r"\[(.*)\]", line).group(1) for line in lines if "(NEEDED)" in line]
        self.assertTrue(needed)
        for name in needed:
            self.assertRegex(name, SYSTEM_LIBRARIES)
        soname = [line for line in lines if "(SONAME)" in line]
        self.assertRegex(soname[0], r"\[libkvrm\.so\.\d+\.\d+\]")

    def test_files_are_headers_libraries_and_how_to_find_them(self):
        names = sorted(str(path.relative_to(PREFIX)) for path in PREFIX.rglob("*") if path.is_file())
        patterns = [r"include/kvrm/(kvrm\.h|kvrm\.hpp|types\.h)", r"lib.*/libkvrm\.(a|so[\d.]*)",
                    r"lib.*/cmake/kvrm/kvrm(Config|ConfigVersion|Targets(-\w+)?)\.cmake",
                    r"lib.*/pkgconfig/kvrm\.pc",
                    r"share/doc/kvrm/(embedding\.md|frame\.md|examples/(\w+/\w+\.(c|cc|h)|CMakeLists\.txt))"]
        for name in names:
            self.assertTrue(any(re.fullmatch(pattern, name) for pattern in patterns), name)
        for path in [*PREFIX.rglob("*.cmake"), *PREFIX.rglob("*.pc")]:
            self.assertNotIn(str(ROOT), path.read_text(), path)
            self.assertNotIn(str(WORK), path.read_text(), path)

    def test_version_of_package_and_header_agree(self):
        header = (PREFIX / "include/kvrm/types.h").read_text()
        numbers = re.findall(r"#define KVRM_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)u", header)
        self.assertEqual(pkg_config("--modversion"), [".".join(numbers)])

    def test_examples_run_by_find_package(self):
        sources = PREFIX / "share/doc/kvrm/examples"
        run(CMAKE, "-S", sources, "-B", WORK / "by-cmake", "-DCMAKE_BUILD_TYPE=Release",
            f"-DCMAKE_PREFIX_PATH={PREFIX}", "-DCMAKE_C_FLAGS=-Werror", "-DCMAKE_CXX_FLAGS=-Werror")
        run(CMAKE, "--build", WORK / "by-cmake")
        out = run("ctest", "-V", cwd=WORK / "by-cmake")
        for name in ["static_executor_kvrm", "static_executor_static", "page_table_kvrm", "page_table_static"]:
            self.assertIn(name, out)
        self.assertIn("1000 of 1000 flipped bytes seen", out)
        self.assertIn(" 0 wrong, 0 violations", out)
        self.assertIn(" 0 states wrong", out)

    def test_an_example_is_read_in_one_sitting(self):
        examples = [path for path in (PREFIX / "share/doc/kvrm/examples").glob("*/*") if path.is_file()]
        self.assertIn("static_executor.c", [path.name for path in examples])
        for path in examples:
            self.assertLess(len(path.read_text().splitlines()), 200, path)

    def test_a_project_without_cxx_links_either_library(self):
        folder = WORK / "c-only"
        folder.mkdir(exist_ok=True)
        (folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.16)\nproject(c_only LANGUAGES C)\n"
            "find_package(kvrm 0.1 REQUIRED CONFIG)\n"
            "foreach(library kvrm static)\n  add_executable(main_${library} main.c)\n"
            "  target_link_libraries(main_${library} PRIVATE kvrm::${library})\nendforeach()\n")
        (folder / "main.c").write_text(
            "#include <kvrm/kvrm.h>\nint main(void) { kvrm_runtime* r = 0;\n"
            "return kvrm_version() >= 0x100u && kvrm_create(0, &r) == KVRM_INVALID ? 0 : 1; }\n")
        run(CMAKE, "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={PREFIX}")
        run(CMAKE, "--build", folder / "build")
        for library in ["kvrm", "static"]:
            run(folder / "build" / f"main_{library}")

    def test_a_missing_xxhash_is_said_when_configuring(self):
        shutil.rmtree(WORK / "no-xxhash", ignore_errors=True)
        result = subprocess.run([CMAKE, "-S", ROOT, "-B", WORK / "no-xxhash", "-DKVRM_HEART_ONLY=ON",
                                 f"-DCMAKE_FIND_ROOT_PATH={WORK / 'nowhere'}",
                                 "-DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY"], capture_output=True, text=True)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("libxxhash-dev", result.stderr)

    def test_an_example_runs_by_pkg_config(self):
        source = ROOT / "examples/static_executor/static_executor.c"
        program = WORK / "by-pkg-config"
        run(cc(), "-std=c11", "-O1", "-o", program, source, *pkg_config("--cflags", "--libs"),
            f"-Wl,-rpath,{library_dir()}")
        self.assertIn(" 0 wrong, 0 violations", run(program))

    def test_the_archive_links_by_pkg_config(self):
        source = ROOT / "examples/static_executor/static_executor.c"
        program = WORK / "by-pkg-config-static"
        words = pkg_config("--static", "--cflags", "--libs")
        words = ["-l:libkvrm.a" if word == "-lkvrm" else word for word in words]
        run(cc(), "-std=c11", "-O1", "-o", program, source, *words)
        self.assertNotIn("libkvrm", run("readelf", "-d", program))
        run(program)


class EmbeddingPageTest(unittest.TestCase):
    page = (ROOT / "docs/embedding.md").read_text()

    def test_its_program_builds_and_runs(self):
        blocks = re.findall(r"^```c\n(.*?)^```$", self.page, re.M | re.S)
        source = WORK / "embedding.c"
        source.write_text("\n".join(blocks))
        program = WORK / "embedding"
        run(cc(), "-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", program, source,
            *pkg_config("--cflags", "--libs"), f"-Wl,-rpath,{library_dir()}")
        self.assertIn(" 0 violations", run(program))

    def test_its_cpp_program_builds_and_runs(self):
        blocks = re.findall(r"^```cpp\n(.*?)^```$", self.page, re.M | re.S)
        source = WORK / "embedding.cc"
        source.write_text("\n".join(blocks))
        program = WORK / "embedding-cpp"
        run(cxx(), "-std=c++17", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", program, source,
            *pkg_config("--cflags", "--libs"), f"-Wl,-rpath,{library_dir()}")
        self.assertIn("7 rows", run(program))

    def test_it_names_every_call_and_no_other(self):
        listed = set((ROOT / "src/capi/exports.txt").read_text().split())
        header = (PREFIX / "include/kvrm/types.h").read_text()
        table = self.page[self.page.index("## All calls"):]
        self.assertEqual(set(re.findall(r"`(kvrm_\w+)`", table)), listed)
        for name in set(re.findall(r"\bkvrm_\w+", self.page)):
            self.assertTrue(name in listed or name in header, name)


if __name__ == "__main__":
    unittest.main()
