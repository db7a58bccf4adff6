#!/usr/bin/env bash
# Checks, and installs if possible, the tools that the project needs: ensure-tools.sh [python] [java] [node] [chromium] [prometheus]
#
#   python  3.10 or newer, with venv and ensurepip   (PYTHON names another interpreter than python3)
#   java    17 or newer, for Spark                   (JAVA_HOME is respected)
#   node    18 or newer, with npm, for the Bull and BullMQ packages that the tests use
#   chromium  123 or newer, with its driver, for the tests of the page; only if it is named
#   prometheus  2.30 or newer, with promtool, for the tests of alerts and the dashboard; only if it is named
#
# As root on Debian or Ubuntu it installs missing tools; otherwise it prints the command to run and fails.
set -euo pipefail

readonly PYTHON_WANTED=3.10 JAVA_WANTED=17 NODE_WANTED=18 CHROMIUM_WANTED=123 PROMETHEUS_WANTED=2.30

# The first number with dots in a version text: 'openjdk version "17.0.15" 2025-04-15' -> 17.0.15
parse_version() {
  [[ $1 =~ [0-9]+(\.[0-9]+)* ]] && echo "${BASH_REMATCH[0]}"
}

# version_at_least 3.9.2 3.10 -> false, because versions are compared part by part
version_at_least() {
  local have=$1 want=$2
  [[ $(printf '%s\n%s\n' "$want" "$have" | sort -V | head -n 1) == "$want" ]]
}

# Each version_of_* prints the installed version, or nothing.
version_of_python() {
  local python=${PYTHON:-python3}
  "$python" -c 'import venv, ensurepip' 2>/dev/null || return 0
  parse_version "$("$python" --version 2>&1)" || true
}

version_of_java() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
  parse_version "$("$java" -version 2>&1 | grep -m 1 version)" || true
}

version_of_node() {
  command -v npm >/dev/null || return 0
  parse_version "$(node --version 2>/dev/null)" || true
}

version_of_chromium() {
  local browser
  command -v chromedriver >/dev/null || return 0
  for browser in chromium chromium-browser google-chrome; do
    command -v "$browser" >/dev/null || continue
    parse_version "$("$browser" --version 2>/dev/null)" || true
    return
  done
}

version_of_prometheus() {
  command -v promtool >/dev/null || return 0
  parse_version "$(prometheus --version 2>&1 | head -n 1)" || true
}

wanted_of() {
  case $1 in
    python) echo "$PYTHON_WANTED" ;;
    java) echo "$JAVA_WANTED" ;;
    node) echo "$NODE_WANTED" ;;
    chromium) echo "$CHROMIUM_WANTED" ;;
    prometheus) echo "$PROMETHEUS_WANTED" ;;
    *) return 1 ;;
  esac
}

is_installed() {
  local have
  have=$("version_of_$1")
  [[ -n $have ]] && version_at_least "$have" "$(wanted_of "$1")"
}

package_exists() {
  apt-cache show --no-all-versions "$1" >/dev/null 2>&1
}

# Distributions have one or two Java versions each; Spark supports all of these.
java_package() {
  local package
  for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
    if package_exists "$package"; then
      echo "$package"
      return
    fi
  done
  echo default-jre-headless
}

# Ubuntu has other names than Debian.
chromium_packages() {
  if package_exists chromium-driver; then
    echo chromium chromium-driver
  else
    echo chromium-browser chromium-chromedriver
  fi
}

packages_for() {
  case $1 in
    python) echo python3 python3-venv ;;
    java) java_package ;;
    node) echo nodejs npm ;;
    chromium) chromium_packages ;;
    prometheus) echo prometheus ;;
  esac
}

has_apt() { command -v apt-get >/dev/null; }
is_root() { [[ $(id -u) == 0 ]]; }

update_package_lists() {
  apt-get update </dev/null
}

install_packages() {
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" </dev/null
}

report_missing() {
  local have
  have=$("version_of_$1")
  echo "expected $1 $(wanted_of "$1") or newer, got: ${have:-none}" >&2
}

main() {
  local tool
  local -a missing=() packages=()
  (($#)) || set -- python java node
  for tool in "$@"; do
    wanted_of "$tool" >/dev/null || { echo "expected a tool of python, java, node, chromium, prometheus, got: $tool" >&2; return 2; }
    is_installed "$tool" || missing+=("$tool")
  done
  ((${#missing[@]})) || return 0
  for tool in "${missing[@]}"; do report_missing "$tool"; done

  if ! has_apt; then
    echo "Install it with your package manager, then run make again." >&2
    return 1
  fi
  if is_root; then
    update_package_lists
  fi
  for tool in "${missing[@]}"; do
    # shellcheck disable=SC2207  # package names have no spaces
    packages+=($(packages_for "$tool"))
  done
  if ! is_root; then
    echo "Run: sudo apt-get update && sudo apt-get install -y ${packages[*]}" >&2
    return 1
  fi
  install_packages "${packages[@]}"
  for tool in "${missing[@]}"; do
    is_installed "$tool" && continue
    report_missing "$tool"
    echo "The packages of this system are too old: install a newer $tool by hand, then run make again" \
      "(make PYTHON=... names another python)." >&2
    return 1
  done
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  main "$@"
fi
