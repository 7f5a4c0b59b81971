# Sourced by .ci/run and .ci/sqlx: finds or installs Postgres, and runs a private one that is thrown away.

# The folder of initdb, postgres, pg_ctl and psql; fails when there is none.
postgres_bin() {
    local dir
    for dir in "${PAYONCE_PG_BIN:-}" \
        "$(dirname "$(readlink -f "$(command -v initdb || echo /none/none)")")" \
        "$(pg_config --bindir 2>/dev/null || true)" \
        $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -Vr) \
        /usr/lib/postgresql/bin /usr/libexec/postgresql* /opt/homebrew/opt/postgresql*/bin /usr/local/pgsql/bin; do
        if [ -n "$dir" ] && [ -x "$dir/initdb" ] && [ -x "$dir/pg_ctl" ] && [ -x "$dir/psql" ]; then
            echo "$dir"
            return 0
        fi
    done
    return 1
}

# Root on Debian installs it, without the cluster that the package would make and start; others are told how.
ensure_postgres() {
    postgres_bin >/dev/null && return 0
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "Postgres is not installed: sudo apt-get install -y --no-install-recommends postgresql" >&2
        return 1
    fi
    if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
        mkdir -p /etc/postgresql-common
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold postgresql >/dev/null
    postgres_bin >/dev/null
}

# Runs a command as the account that Postgres may run as: it refuses root.
as_postgres() {
    if [ "$(id -u)" -eq 0 ]; then
        local account=nobody
        if id postgres >/dev/null 2>&1; then account=postgres; fi
        (cd / && setpriv --reuid="$account" --regid="$(id -g "$account")" --clear-groups -- env HOME=/ LC_ALL=C "$@")
    else
        (cd / && LC_ALL=C "$@")
    fi
}

# Starts a Postgres that listens in a folder of its own and nowhere else. Sets DATABASE_URL. Stopped by stop_postgres.
start_postgres() {
    unset PGDATA PGHOST PGPORT PGUSER PGPASSWORD PGDATABASE PGOPTIONS PGSERVICE
    postgres_programs=$(postgres_bin)
    # Short: the path of a socket has about a hundred characters at most.
    postgres_home=$(mktemp -d /tmp/payonce-ci.XXXXXX)
    if [ "$(id -u)" -eq 0 ]; then
        chown "$(as_postgres id -u):$(as_postgres id -g)" "$postgres_home"
    fi
    as_postgres "$postgres_programs/initdb" -D "$postgres_home/data" -U payonce -A trust -E UTF8 --no-locale -N \
        >/dev/null
    as_postgres "$postgres_programs/pg_ctl" -D "$postgres_home/data" -l "$postgres_home/log" -w -s start \
        -o "-k $postgres_home -c listen_addresses= -c fsync=off -c synchronous_commit=off" ||
        { cat "$postgres_home/log" >&2; return 1; }
    psql_private() {
        "$postgres_programs/psql" -X -q -v ON_ERROR_STOP=1 -h "$postgres_home" -U payonce -d "$1" "${@:2}"
    }
    psql_private postgres -c "CREATE DATABASE payonce"
    export DATABASE_URL="postgres://payonce@localhost/payonce?host=$postgres_home"
}

stop_postgres() {
    [ -n "${postgres_home:-}" ] || return 0
    if [ -e "$postgres_home/data/postmaster.pid" ]; then
        as_postgres "$postgres_programs/pg_ctl" -D "$postgres_home/data" -m immediate -w -s stop || true
    fi
    rm -rf "$postgres_home"
}
