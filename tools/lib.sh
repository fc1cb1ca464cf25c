# shellcheck shell=bash
# Shared by the scripts beside it: named steps with their times, one way to fail, packages by
# name. Sourced by bash with `set -euo pipefail`; never run by itself.
#
# A step's output goes to a terminal as it comes; without a terminal it goes to build/log/STEP.log,
# whose end is shown when the step fails. KVRM_VERBOSE=1 shows it in both cases.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
log_dir=$root/build/log
# shellcheck disable=SC2034  # used by get-model, rivals
models_dir=${XDG_CACHE_HOME:-${HOME:?is not set; set it or XDG_CACHE_HOME, models are kept there}/.cache}
models_dir+=/kvrm/models
step_name='' step_hint='' step_start=0
at_exit=()  # a script puts there the command that stops what it started
exec 3>&1 4>&2

# Clones in different folders share compiled objects.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1

say() { printf '%s\n' "$*" >&3; }

now_us() { printf '%s' "${EPOCHREALTIME/[.,]/}"; }

seconds_since() {  # START_US
  local tenths=$((($(now_us) - $1) / 100000))
  printf '%d.%d s' $((tenths / 10)) $((tenths % 10))
}

log_file() { printf '%s/%s.log' "$log_dir" "${step_name//[^a-zA-Z0-9]/-}"; }

# begin NAME HINT: the commands up to `end` are the step NAME; where one of them fails the script
# ends, says that NAME failed, and gives HINT as what to do.
begin() {
  step_name=$1 step_hint=$2 step_start=$(now_us)
  say "-- $step_name"
  if [[ ! -t 3 && -z ${KVRM_VERBOSE:-} ]]; then
    mkdir -p "$log_dir"
    exec >"$(log_file)" 2>&1
  fi
}

end() {
  exec >&3 2>&4
  say "-- $step_name: $(seconds_since "$step_start")"
  step_name=''
}

# fail WHAT TODO: ends the script with both.
fail() {
  exec >&3 2>&4
  step_name=''
  printf 'FAILED: %s\nWhat to do: %s\n' "$1" "$2" >&2
  exit 1
}

on_exit() {
  local status=$?
  exec >&3 2>&4
  if ((${#at_exit[@]} > 0)); then "${at_exit[@]}"; fi
  if [[ $status -ne 0 && -n $step_name ]]; then
    if [[ ! -t 3 && -z ${KVRM_VERBOSE:-} && -f $(log_file) ]]; then
      tail -n "${KVRM_LOG_LINES:-40}" "$(log_file)" >&2
    fi
    printf 'FAILED: %s (exit code %d, after %s)\nWhat to do: %s\n' "$step_name" "$status" \
      "$(seconds_since "$step_start")" "$step_hint" >&2
  fi
}
trap on_exit EXIT

# packages_for LIST...: apt names of the lists (first word of a line in packages.txt).
packages_for() {
  local list
  for list in "$@"; do
    awk -v list="$list" '$1 == list { print $2 }' "$root/tools/packages.txt"
  done
}

missing_packages() {  # LIST...
  local names=() installed
  mapfile -t names < <(packages_for "$@" | sort -u)
  installed=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "${names[@]}" 2>/dev/null |
    awk '$1 == "ii" { print $2 }') || true
  comm -23 <(printf '%s\n' "${names[@]}") <(sort -u <<<"$installed")
}

# install_packages LIST...: nothing when all of them are there; else apt as root, through sudo, or
# the one line to ask an administrator for.
install_packages() {
  [[ -z ${KVRM_SKIP_PACKAGES:-} ]] || return 0
  begin 'install packages' 'read the lines above; a package that is not found needs Debian 12
  (bookworm) sources. With equal packages installed by other means, set KVRM_SKIP_PACKAGES=1.'
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    fail 'install packages: there is no apt-get here' \
      "install what tools/packages.txt names for this system, then set KVRM_SKIP_PACKAGES=1: $(
        packages_for "$@" | sort -u | tr '\n' ' ')"
  fi
  local missing=() as_root=()
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} > 0)); then
    if ((EUID != 0)); then
      command -v sudo >/dev/null || fail "install packages: not root, and there is no sudo" \
        "ask an administrator for: apt-get install --no-install-recommends -y ${missing[*]}"
      as_root=(sudo)
    fi
    say "   ${missing[*]}"
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install --no-install-recommends -y -q "${missing[@]}"
  fi
  end
}

# build PRESET [TARGET...]: configures, then builds what changed.
build() {
  local preset=$1 targets=()
  shift
  (($# == 0)) || targets=(--target "$@")
  begin "configure $preset" "if a library is missing, run tools/quickstart or tools/test, which
  install what is needed; if the folder was made by other tools, remove build/$preset."
  # A new folder is made to be built once; one that was configured by hand stays as it is.
  local together=()
  [[ -f $root/build/$preset/CMakeCache.txt ]] || together=(-DKVRM_UNITY=ON)
  (cd "$root" && cmake --preset "$preset" "${together[@]}")
  end
  begin "build $preset" "the first error above names the file; rerun with: cmake --build --preset
  $preset --parallel 1"
  (cd "$root" && cmake --build --preset "$preset" --parallel "$(nproc)" "${targets[@]}")
  end
}
