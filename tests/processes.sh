# Shared by tests/watch.sh and tests/suite.sh: what a limit ends is ended whole.
#
#   end_marked MARK   every process whose environment holds MARK, in whatever group, session or place in the tree: asked to end, and
#                     killed after 10 seconds
#
# A limit that ends a process and its group leaves those that have a group of their own, as what a `timeout` has started has.
#
# POSIX sh; elsewhere than on Linux nothing is found.

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
