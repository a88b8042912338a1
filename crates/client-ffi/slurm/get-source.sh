#!/bin/sh
# get-source.sh - unpacks the source of the Slurm that is installed, on Debian and its children.
#
#   get-source.sh FOLDER      prints the folder to hand to `make SLURM_SRC=`
#
# Needs dpkg-dev, and no root: apt gets lists of its own, made from those of the system, in a temporary
# folder. What is there already is not fetched again.
#
# SPDX-License-Identifier: GPL-2.0-or-later
set -eu
[ $# = 1 ] || { sed -n '2,9p' "$0"; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
version=$(dpkg-query -W -f '${source:Version}' slurmctld 2> /dev/null) || {
	echo "get-source: slurmctld is not installed, so it is not known which version is wanted" >&2
	exit 1
}
upstream=${version%-*}
source=$folder/slurm-wlm-${upstream#*:}
if [ ! -e "$source/src/slurmctld/slurmctld.h" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$work/parts" "$work/lists/partial" "$work/cache/archives/partial"
	for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
		[ -e "$list" ] || continue
		sed -E 's/^deb(-src)? /deb-src /; s/^Types:.*/Types: deb-src/' "$list" > "$work/parts/${list##*/}"
	done
	# Apt skips files of other names.
	[ ! -e "$work/parts/sources.list" ] || mv "$work/parts/sources.list" "$work/parts/system.list"
	apt() {
		apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/parts" \
			-o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" \
			-o APT::Sandbox::User= "$@"
	}
	# Somebody else's list without sources is not the end.
	apt update >&2 || true
	rm -rf "$source"
	(cd "$folder" && apt source "slurm-wlm=$version" > "$work/log" 2>&1) || {
		cat "$work/log" >&2
		exit 1
	}
fi
echo "$source"
