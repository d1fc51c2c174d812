#!/bin/sh
# Plays adb, with a device that is a folder of this machine: what is said to its shell, a shell here says to the same
# paths. The folder of this script has the plan, as files: `devices` (lines of `adb devices`), `log` (written: a line per
# call), `bin` (programs that go before the system's on the device), and what goes wrong with the Nth piece that is
# pushed: `cut-N` (so many bytes arrive, then the connection breaks), `bad-N` (it arrives damaged). What is in `hook` is
# done first, in every call. Where there is a folder `root`, the device's loaders and what its kernel says of the chip lie
# in it.
here=$(dirname "$0")
printf '%s\n' "$*" >> "$here/log"
[ ! -f "$here/hook" ] || . "$here/hook"
if [ "$1" = devices ]; then
    printf 'List of devices attached\n'
    cat "$here/devices"
    printf '\n'
    exit 0
fi
if [ "$1" != -s ] || [ "$3" != shell ] || [ "$4" != -T ] || [ $# -ne 5 ]; then
    echo "adb: usage" >&2
    exit 1
fi
if ! grep -q "^$2	device" "$here/devices"; then
    echo "error: device '$2' not found" >&2
    exit 1
fi
PATH=$here/bin:$PATH
export PATH
line=$5
if [ -d "$here/root" ]; then
    line=$(printf %s "$5" | sed "s#/system/bin/linker64\|/lib/ld-\|/sys/devices/#$here/root&#g")
fi
case $5 in
*'cat >> '*)
    n=$(grep -c 'cat >> ' "$here/log")
    if [ -f "$here/cut-$n" ]; then
        head -c "$(cat "$here/cut-$n")" | sh -c "$line" > /dev/null 2>&1
        echo "error: closed" >&2
        exit 1
    fi
    if [ -f "$here/bad-$n" ]; then
        tr '\000-\176' '\001-\177' | sh -c "$line"
        exit
    fi
    ;;
esac
exec sh -c "$line"
