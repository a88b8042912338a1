#!/bin/bash
# mini-gridengine.sh - a throw-away one-machine Grid Engine inside one directory.
#
#   mini-gridengine.sh start DIR [--slots N]
#   mini-gridengine.sh stop  DIR
#
# Everything lies under DIR. The daemons run in network, UTS and mount namespaces of their own, because qmaster cannot be
# told where to listen and refuses a host name of 127.0.0.1; DIR/bin has the commands, which enter them. Must be run as
# root. Needs Debian's gridengine-master, gridengine-exec, gridengine-client and util-linux.
set -eu
LIB=/usr/lib/gridengine SHARE=/usr/share/gridengine HOST=pool ADDRESS=10.9.9.9
die() { echo "mini-gridengine: $*" >&2; exit 1; }
[ $# -ge 2 ] || { sed -n '2,11p' "$0"; exit 2; }
VERB=$1; mkdir -p "$2"; DIR=$(cd "$2" && pwd -P); shift 2

# A pid file holds "PID STARTTIME", so a recycled pid is never signalled.
starttime() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" {print $20}'; }
alive() {
    local p s; [ -r "$DIR/run/$1.own" ] || return 1
    read -r p s < "$DIR/run/$1.own"
    [ -n "$s" ] && [ "$(starttime "$p")" = "$s" ] && echo "$p"
}
spawn() { # NAME CMD...
    local name=$1; shift
    ( exec setsid "$@" ) >> "$DIR/log/$name.out" 2>&1 < /dev/null &
    echo "$! $(starttime $!)" > "$DIR/run/$name.own"
}
wait_for() { # SECONDS WHAT CMD...
    local end=$(( SECONDS + $1 )) what=$2; shift 2
    until timeout 10 "$@" > /dev/null 2>&1; do
        [ $SECONDS -lt $end ] || die "timed out waiting for $what (see $DIR/log)"
        sleep 0.1
    done
}
wrap() { # the command in the namespaces of the pool
    printf '#!/bin/sh\nexec nsenter --target %s --net --uts --mount %s "$@"\n' "$1" \
        "env SGE_ROOT=$DIR SGE_CELL=default SGE_QMASTER_PORT=6444 SGE_EXECD_PORT=6445 SGE_ND=1 $LIB/$2" > "$DIR/bin/$2"
    chmod 755 "$DIR/bin/$2"
}

pool() { # SLOTS : a queue, a parallel environment for jobs of several slots, and a quick scheduler
    local slots=$1
    cat > "$DIR/run/pe" <<CONF
pe_name            smp
slots              999
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    \$pe_slots
control_slaves     FALSE
job_is_first_task  TRUE
urgency_slots      min
accounting_summary FALSE
qsort_args NONE
CONF
    cat > "$DIR/run/queue" <<CONF
qname                 all.q
hostlist              pool
seq_no                0
load_thresholds       NONE
suspend_thresholds    NONE
nsuspend              1
suspend_interval      00:05:00
priority              0
min_cpu_interval      00:05:00
processors            UNDEFINED
qtype                 BATCH INTERACTIVE
ckpt_list             NONE
pe_list               smp
rerun                 FALSE
slots                 $slots
tmpdir                /tmp
shell                 /bin/sh
prolog                NONE
epilog                NONE
shell_start_mode      posix_compliant
starter_method        NONE
suspend_method        NONE
resume_method         NONE
terminate_method      NONE
notify                00:00:60
owner_list            NONE
user_lists            NONE
xuser_lists           NONE
subordinate_list      NONE
complex_values        NONE
projects              NONE
xprojects             NONE
calendar              NONE
initial_state         default
s_rt                  INFINITY
h_rt                  INFINITY
s_cpu                 INFINITY
h_cpu                 INFINITY
s_fsize               INFINITY
h_fsize               INFINITY
s_data                INFINITY
h_data                INFINITY
s_stack               INFINITY
h_stack               INFINITY
s_core                INFINITY
h_core                INFINITY
s_rss                 INFINITY
h_rss                 INFINITY
s_vmem                INFINITY
h_vmem                INFINITY
CONF
    "$DIR/bin/qconf" -Ap "$DIR/run/pe"
    "$DIR/bin/qconf" -Aq "$DIR/run/queue"
    "$DIR/bin/qconf" -ssconf | sed 's/^schedule_interval .*/schedule_interval 0:0:1/; s/^flush_submit_sec .*/flush_submit_sec 1/
        s/^flush_finish_sec .*/flush_finish_sec 1/; s/^job_load_adjustments .*/job_load_adjustments NONE/
        s/^load_formula .*/load_formula slots/' > "$DIR/run/sched"
    "$DIR/bin/qconf" -Msconf "$DIR/run/sched"
}

start() {
    local slots=2 hold c
    while [ $# -gt 0 ]; do case $1 in --slots) slots=$2; shift 2 ;; *) die "unknown option $1" ;; esac; done
    [ "$(id -u)" = 0 ] || die "must be root"
    mkdir -p "$DIR"/{bin,run,log,default/common,spool/qmaster/job_scripts,spool/execd,utilbin}
    ln -sfn "$LIB" "$DIR/bin/lx-amd64"; ln -sfn "$LIB" "$DIR/utilbin/lx-amd64"; ln -sfn "$SHARE/util" "$DIR/util"
    printf '127.0.0.1 localhost\n%s %s\n' "$ADDRESS" "$HOST" > "$DIR/run/hosts"
    echo "$HOST" > "$DIR/default/common/act_qmaster"
    cat > "$DIR/default/common/bootstrap" <<CONF
admin_user             none
default_domain         none
ignore_fqdn            true
spooling_method        classic
spooling_lib           libspoolc
spooling_params        $DIR/default/common;$DIR/spool/qmaster
binary_path            $DIR/bin
qmaster_spool_dir      $DIR/spool/qmaster
security_mode          none
listener_threads       1
worker_threads         1
scheduler_threads      1
jvm_threads            0
CONF
    # The namespaces live as long as this does.
    spawn names unshare --net --uts --mount sh -c "ip link set lo up && ip addr add $ADDRESS/32 dev lo &&
        hostname $HOST && mount --bind '$DIR/run/hosts' /etc/hosts && touch '$DIR/run/ready' && exec sleep infinity"
    trap 'rc=$?; [ $rc = 0 ] || stop > /dev/null 2>&1; exit $rc' EXIT
    wait_for 20 "the namespaces" test -e "$DIR/run/ready"
    hold=$(alive names)
    for c in sge_qmaster sge_execd qconf qstat qhost qsub qalter qdel qacct qhold qrls qmod spoolinit spooldefaults; do wrap "$hold" "$c"; done
    "$DIR/bin/spoolinit" classic libspoolc "$DIR/default/common;$DIR/spool/qmaster" init
    sed "s|^execd_spool_dir.*|execd_spool_dir $DIR/spool/execd|; s|^min_uid.*|min_uid 0|; s|^min_gid.*|min_gid 0|;
        s|^reporting_params.*|reporting_params accounting=true reporting=false flush_time=00:00:01 joblog=false sharelog=00:00:00|;
        s|^gid_range.*|gid_range 60000-60999|" "$SHARE/default-configuration" > "$DIR/run/configuration"
    "$DIR/bin/spooldefaults" configuration "$DIR/run/configuration"
    "$DIR/bin/spooldefaults" complexes "$SHARE/util/resources/centry"
    "$DIR/bin/spooldefaults" usersets "$SHARE/util/resources/usersets"
    "$DIR/bin/spooldefaults" managers root
    spawn qmaster "$DIR/bin/sge_qmaster"
    wait_for 60 qmaster "$DIR/bin/qconf" -sh
    "$DIR/bin/qconf" -ah "$HOST"; "$DIR/bin/qconf" -as "$HOST"
    spawn execd "$DIR/bin/sge_execd"
    pool "$slots"
    trap - EXIT
    echo "mini-gridengine up: $slots slots"
}
stop() {
    local n p
    for n in execd qmaster names; do p=$(alive $n) && kill -TERM "$p" || true; done
    for n in execd qmaster names; do
        for _ in $(seq 100); do alive $n > /dev/null || break; sleep 0.1; done
        p=$(alive $n) && kill -KILL "$p" || true
        rm -f "$DIR/run/$n.own"
    done
    echo "mini-gridengine in $DIR stopped"
}
case $VERB in start) start "$@" ;; stop) stop ;; *) die "unknown verb $VERB" ;; esac
