# Runs beneath payonce, as the account that owns the cluster, and outlives it by as long as it takes to clean up.
#
# stdin   a pipe whose other end only payonce holds: the first line is the superuser's password, later lines are
#         commands (`crash`, `leave`). Its end means that payonce has stopped or died: Postgres is stopped, and a
#         temporary folder removed.
# stdout  what happened, a line each: `initialised`, `initdb-failed N`, `exited N`.
# args    the folder, the folder of the programs, `temporary` or `kept`, initdb's last option, then Postgres' own.
home=$1 bin=$2 kind=$3 initdb_option=$4
shift 4

# payonce decides when Postgres stops, not a signal to the group.
trap '' HUP INT TERM PIPE
umask 077
exec 3<&0 </dev/null

finish() {
    cd / || exit 1
    if [ "$kind" = temporary ]; then rm -rf "$home"; fi
    exit 0
}

IFS= read -r password <&3 || exit 0
[ -d "$home" ] || mkdir "$home" || exit 1
# The next start looks for processes in here, and waits for them.
cd "$home" || exit 1

# Made aside and renamed, so that a half-made cluster is never taken for one.
if [ ! -d "$home/data" ]; then
    rm -rf "$home/new"
    printf '%s\n' "$password" >"$home/password"
    "$bin/initdb" -D "$home/new" --username=payonce --pwfile="$home/password" --auth=scram-sha-256 \
        --encoding=UTF8 --locale=C "$initdb_option" >"$home/postgres.log" 2>&1 3<&-
    status=$?
    rm -f "$home/password"
    if [ "$status" -ne 0 ] || ! mv "$home/new" "$home/data"; then
        echo "initdb-failed $status"
        cat <&3 >/dev/null
        finish
    fi
fi
password=
echo initialised

if [ -f "$home/postgres.log" ]; then mv -f "$home/postgres.log" "$home/postgres.log.1"; fi
"$bin/postgres" -D "$home/data" "$@" >"$home/postgres.log" 2>&1 3<&- &
postgres=$!

(
    while read -r command <&3; do
        case $command in
            crash) kill -QUIT "$postgres" ;;
            leave) exit 9 ;;
        esac
    done
    # Repeated, because Postgres may not be listening to signals yet. Fast for 10 s, then immediate, then by force.
    tenths=0
    while kill -0 "$postgres" 2>/dev/null; do
        if [ "$tenths" -lt 100 ]; then kill -INT "$postgres"
        elif [ "$tenths" -lt 150 ]; then kill -QUIT "$postgres"
        else kill -KILL "$postgres"; fi
        sleep 0.1 || sleep 1
        tenths=$((tenths + 1))
    done
) &
reader=$!
exec 3<&-

wait "$postgres"
echo "exited $?"
wait "$reader"
[ $? -eq 9 ] || finish
