#!/usr/bin/env bash
# Installs the programs that tests start, where they are missing. PostgreSQL comes from a wheel.
set -euo pipefail

missing=()
[ -e /usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1 ] ||
  compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || missing+=(libfaketime)
command -v tmux >/dev/null || missing+=(tmux)
command -v screen >/dev/null || missing+=(screen)
command -v javac >/dev/null || missing+=(default-jdk-headless)
[ -x /usr/games/openttd ] || missing+=(openttd openttd-opengfx)
[ -x /lib/systemd/systemd ] || missing+=(systemd)
command -v dbus-daemon >/dev/null || missing+=(dbus)
command -v curl >/dev/null || missing+=(curl)
command -v ip >/dev/null || missing+=(iproute2)
command -v openssl >/dev/null || missing+=(openssl)
command -v chromium >/dev/null || missing+=(chromium)


# Proxies are only unpacked: an installed package would start one on this machine's own ports.
programs=.venv/programs
unpacked=()
for program in nginx caddy; do
  command -v "$program" >/dev/null || [ -n "$(compgen -G "$programs/usr/*/$program")" ] || unpacked+=("$program")
done

[ ${#missing[@]} -eq 0 ] && [ ${#unpacked[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -ne 0 ] && [ ${#missing[@]} -gt 0 ]; then
  echo "these packages are needed by the tests: ${missing[*]}; install them as root" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
[ "$(id -u)" -ne 0 ] || apt-get update -qq
if [ ${#missing[@]} -gt 0 ]; then
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
if [ ${#unpacked[@]} -gt 0 ]; then
  packages=$(mktemp -d)
  trap 'rm -r "$packages"' EXIT
  chmod 755 "$packages"
  (cd "$packages" && apt-get download -qq "${unpacked[@]}" 2>/dev/null)
  for package in "$packages"/*.deb; do
    dpkg-deb -x "$package" "$programs"
  done
fi
