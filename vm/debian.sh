# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Debian packages of any suite, fetched by name and unpacked somewhere, without
# touching this machine's own apt state. The archive's address comes from the
# machine's own apt sources: of those that are Debian's, the one that has the
# release itself, and the security archive.

debian_archives() {
	# shellcheck disable=SC2016 # apt's own variables
	apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' |
		sort -u | grep '^Debian|'
}

# debian_apt STATE-DIR SUITE...: from here on apt works in STATE-DIR
debian_apt() {
	state=$1
	shift
	list=$(debian_archives) || { apt-get -qq update >&2; list=$(debian_archives); } || {
		echo "no Debian archive among this machine's apt sources" >&2
		return 1
	}
	main=$(echo "$list" | sed -n 's/^Debian|Debian|//p' | head -1)
	security=$(echo "$list" | sed -n 's/^Debian|Debian-Security|//p' | head -1)

	mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
	: >"$state/status"
	for suite; do
		case $suite in
		*-security) uri=$security ;;
		*) uri=$main ;;
		esac
		[ -z "$uri" ] || echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
			"$uri $suite main"
	done >"$state/sources.list"
	cat >"$state/conf" <<-CONF
		Dir::State "$state";
		Dir::State::lists "$state/lists";
		Dir::State::status "$state/status";
		Dir::Cache "$state/cache";
		Dir::Etc::sourcelist "$state/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
		APT::Sandbox::User "root";
		APT::Architecture "amd64";
		Acquire::Languages "none";
		Acquire::Retries "3";
	CONF
	APT_CONFIG=$state/conf
	export APT_CONFIG
	apt-get -qq update >&2
}

# debian_unpack DIR PACKAGE...
debian_unpack() {
	to=$1
	shift
	mkdir -p "$to" "$to.deb"
	(cd "$to.deb" && apt-get -qq download "$@" >&2)
	for deb in "$to.deb"/*.deb; do
		dpkg-deb -x "$deb" "$to"
	done
	rm -rf "$to.deb"
}
