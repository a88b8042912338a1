#!/bin/bash
# mini-condor.sh - a throw-away one-machine HTCondor pool inside one directory.
#
#   mini-condor.sh start DIR [--slots N]
#   mini-condor.sh stop  DIR
#
# Everything lies under DIR. The daemons run in network, UTS, mount and PID namespaces of their own, so they take no port
# of the machine, and whatever they started ends with them; DIR/bin has the commands, which enter them. In there DIR is
# /mnt, so that every user may read it. Must be run as root. Needs Debian's condor and util-linux.
set -eu
die() { echo "mini-condor: $*" >&2; exit 1; }
[ $# -ge 2 ] || { sed -n '2,9p' "$0"; exit 2; }
VERB=$1; mkdir -p "$2"; DIR=$(cd "$2" && pwd -P); shift 2

# A pid file holds "PID STARTTIME", so a recycled pid is never signalled.
starttime() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" {print $20}'; }
alive() { # NAME
    local p s; [ -r "$DIR/run/$1.own" ] || return 1
    read -r p s < "$DIR/run/$1.own"
    [ -n "$s" ] && [ "$(starttime "$p")" = "$s" ] && echo "$p"
}
own() { echo "$2 $(starttime "$2")" > "$DIR/run/$1.own"; } # NAME PID
wait_for() { # SECONDS WHAT CMD...
    local end=$(( SECONDS + $1 )) what=$2; shift 2
    until timeout 20 "$@" > /dev/null 2>&1; do
        [ $SECONDS -lt $end ] || die "timed out waiting for $what (see $DIR/log)"
        sleep 0.2
    done
}
wrap() { # PID COMMAND : the command in the namespaces of the pool, as the user that POOL_USER names
    cat > "$DIR/bin/$2" <<WRAP
#!/bin/sh
exec nsenter --target $1 --net --uts --mount --pid --wd=/ \\
    chroot \${POOL_USER:+--userspec=\$POOL_USER} / /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    CONDOR_CONFIG=/mnt/condor_config $2 "\$@"
WRAP
    chmod 755 "$DIR/bin/$2"
}

# Without cgroups, and no job has mounts of its own: neither is to be had everywhere.
configuration() {
    cat > "$DIR/condor_config" <<CONF
LOCAL_DIR = /mnt
LOG = \$(LOCAL_DIR)/log
SPOOL = \$(LOCAL_DIR)/spool
EXECUTE = \$(LOCAL_DIR)/execute
LOCK = \$(LOCAL_DIR)/lock
RUN = \$(LOCAL_DIR)/lock
BIN = /usr/bin
SBIN = /usr/sbin
LIB = /usr/lib/condor
LIBEXEC = /usr/libexec/condor
CONDOR_HOST = 127.0.0.1
NETWORK_INTERFACE = 127.0.0.1
FULL_HOSTNAME = pool
UID_DOMAIN = pool
FILESYSTEM_DOMAIN = pool
TRUST_UID_DOMAIN = True
DAEMON_LIST = MASTER, COLLECTOR, NEGOTIATOR, SCHEDD, STARTD
SEC_DEFAULT_AUTHENTICATION_METHODS = FS
SEC_DEFAULT_AUTHENTICATION = REQUIRED
ALLOW_READ = *
ALLOW_WRITE = *
ALLOW_ADMINISTRATOR = root@pool, condor@pool
ALLOW_DAEMON = root@pool, condor@pool
ALLOW_NEGOTIATOR = root@pool, condor@pool
BASE_CGROUP =
MOUNT_UNDER_SCRATCH =
MOUNT_PRIVATE_DEV_SHM = False
NUM_CPUS = $1
MEMORY = 4096
NUM_SLOTS = 1
NUM_SLOTS_TYPE_1 = 1
SLOT_TYPE_1 = 100%
SLOT_TYPE_1_PARTITIONABLE = False
START = True
SUSPEND = False
PREEMPT = False
# Each job is matched anew, at once.
CLAIM_WORKLIFETIME = 0
NEGOTIATOR_INTERVAL = 2
NEGOTIATOR_CYCLE_DELAY = 1
NEGOTIATOR_MIN_INTERVAL = 1
SCHEDD_INTERVAL = 2
SCHEDD_MIN_INTERVAL = 1
UPDATE_INTERVAL = 5
include ifexist : /mnt/fairmesh.conf
CONF
}
start() {
    local slots=1 hold c
    while [ $# -gt 0 ]; do
        case $1 in
            --slots) slots=$2; shift 2 ;;
            *) die "unknown option $1" ;;
        esac
    done
    [ "$(id -u)" = 0 ] || die "must be root"
    mkdir -p "$DIR"/{bin,run,log,spool,execute,lock}
    chmod 755 "$DIR" "$DIR"/{spool,log}; chmod 1777 "$DIR/execute"
    configuration "$slots"
    # The daemons write as Debian's user of that name.
    chown condor:condor "$DIR"/{log,spool,execute,lock}
    printf '127.0.0.1 pool localhost\n' > "$DIR/run/hosts"
    # The namespaces live as long as this does, and the master in them.
    cat > "$DIR/run/names" <<NAMES
set -eu
ip link set lo up; hostname pool
mount --bind "$DIR" /mnt
mount --bind "$DIR/run/hosts" /etc/hosts
mount -t proc proc /proc
exec env PATH=/usr/sbin:/usr/bin:/sbin:/bin CONDOR_CONFIG=/mnt/condor_config condor_master -f
NAMES
    ( exec setsid unshare --net --uts --mount --pid --fork sh "$DIR/run/names" ) \
        >> "$DIR/log/names.out" 2>&1 < /dev/null &
    own names $!
    trap 'rc=$?; [ $rc = 0 ] || stop > /dev/null 2>&1; exit $rc' EXIT
    hold=$(alive names) || die "the namespaces were not made (see $DIR/log/names.out)"
    wait_for 20 "the namespaces" pgrep -P "$hold"
    hold=$(pgrep -P "$hold")
    own first "$hold"
    for c in condor_q condor_history condor_userprio condor_config_val condor_status condor_submit condor_hold \
        condor_release condor_rm condor_reconfig condor_qedit condor_version; do wrap "$hold" "$c"; done
    wait_for 120 "a slot" sh -c "'$DIR/bin/condor_status' -af Name | grep -q pool"
    wait_for 60 "the schedd" sh -c "'$DIR/bin/condor_q' -allusers"
    wait_for 60 "the negotiator" sh -c "'$DIR/bin/condor_userprio' -allusers"
    trap - EXIT
    echo "mini-condor up: $slots CPUs"
}
# The master is the first process of its namespace, and all others end with it. Nothing else ends it for certain: it has
# changed its user, so it is not told of the end of whoever started it.
stop() {
    local n p
    for n in first names; do p=$(alive $n) && kill -KILL "$p" || true; done
    for n in first names; do
        for _ in $(seq 100); do alive $n > /dev/null || break; sleep 0.1; done
        rm -f "$DIR/run/$n.own"
    done
    echo "mini-condor in $DIR stopped"
}
case $VERB in start) start "$@" ;; stop) stop ;; *) die "unknown verb $VERB" ;; esac
