# What becomes of the package in a bare Debian, as root, without systemd: run with `sh -euc`.
say() { echo "package-check: $*"; }

say install
dpkg --install /first.deb
fairmesh --version
getent passwd fairmesh
systemd=/lib/systemd/system/fairmesh.service
test -e "$systemd" || systemd=/usr/lib/systemd/system/fairmesh.service
for file in "$systemd" /etc/default/fairmesh /usr/lib/sysusers.d/fairmesh.conf \
    /usr/share/man/man1/fairmesh-status.1.gz /usr/share/man/man5/fairmesh.toml.5.gz \
    /usr/share/bash-completion/completions/fairmesh /usr/share/zsh/vendor-completions/_fairmesh \
    /usr/share/fish/vendor_completions.d/fairmesh.fish /usr/share/doc/fairmesh/examples/minimal.toml \
    /usr/share/doc/fairmesh/fairmesh.cdx.json /usr/share/doc/fairmesh/copyright; do
    test -s "$file" || { say "no $file"; exit 1; }
done
test ! -e /etc/fairmesh/fairmesh.toml
dpkg-query --show --showformat='${Conffiles}\n' fairmesh | grep -q /etc/default/fairmesh

say "a site, and what the unit does for its node"
fairmesh init /etc/fairmesh --systemd --name hpc1 --cpus 8 --address /dns4/hpc1.example/tcp/7600 --quiet
credentials=/run/credentials/fairmesh.service
install -d -o fairmesh -g fairmesh -m 0700 /var/lib/fairmesh
install -d -o fairmesh -g fairmesh -m 0755 /run/fairmesh "$credentials"
install -o fairmesh -m 0400 /etc/fairmesh/site.key "$credentials/site.key"
start() {
    CREDENTIALS_DIRECTORY=$credentials setpriv --reuid fairmesh --regid fairmesh --clear-groups \
        fairmesh run --config /etc/fairmesh/fairmesh.toml >/node.log 2>&1 &
    node=$!
    tries=0
    until fairmesh status >/status 2>&1; do
        tries=$((tries + 1))
        if test "$tries" -ge 300 || ! kill -0 "$node"; then cat /status /node.log; exit 1; fi
        sleep 0.2
    done
}
start
fairmesh doctor
kill "$node"
wait "$node"

say "upgrade: what an administrator has changed is kept, and so is the state"
echo 'FAIRMESH_LOG=debug' >>/etc/default/fairmesh
before=$(ls /var/lib/fairmesh | sort)
dpkg --force-confdef --force-confold --install /second.deb
test "$(dpkg-query --show --showformat='${Version}' fairmesh)" = 9999-1
grep -q '^FAIRMESH_LOG=debug' /etc/default/fairmesh
test "$(ls /var/lib/fairmesh | sort)" = "$before"
start
kill "$node"
wait "$node"

say "remove: the program goes, what was written stays"
dpkg --remove fairmesh
test ! -e /usr/bin/fairmesh
test -e /etc/default/fairmesh -a -e /etc/fairmesh/fairmesh.toml -a -d /var/lib/fairmesh

say "purge: the state goes, the key stays"
dpkg --purge fairmesh
test ! -e /etc/default/fairmesh -a ! -e /var/lib/fairmesh -a -e /etc/fairmesh/site.key
left=$(find / -xdev -name '*fairmesh*' -not -path '/proc/*' -not -path '/etc/fairmesh*' -not -path '/run/credentials/*' \
    -not -path '/var/lib/systemd/*')
test -z "$left" || { say "left behind: $left"; exit 1; }
