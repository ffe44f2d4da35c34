# Shared by tests/watch.sh and tests/suite.sh: a limit ends a program together with all processes that it has started.
#
#   end_marked MARK   asks every process whose environment holds MARK to end (in any group, session or place in the tree), and
#                     kills it after 10 seconds
#
# Ending only a process and its group would leave processes with a group of their own, such as those that `timeout` starts.
#
# POSIX sh; finds processes only on Linux.

# shellcheck shell=sh
marked_processes() {
  grep -ls -e "$1" /proc/[0-9]*/environ 2>/dev/null | sed 's,^/proc/\([0-9]*\)/.*,\1,'
}

end_marked() {
  marked=$(marked_processes "$1")
  # shellcheck disable=SC2086  # one word for each
  [ -z "$marked" ] || kill $marked 2>/dev/null
  marked_tries=0
  while marked=$(marked_processes "$1") && [ -n "$marked" ] && [ "$marked_tries" -lt 200 ]; do
    # shellcheck disable=SC2086
    [ "$marked_tries" -lt 100 ] || kill -9 $marked 2>/dev/null
    sleep 0.1
    marked_tries=$((marked_tries + 1))
  done
}
