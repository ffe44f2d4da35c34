#pragma once
// What programs that start others need to know: their words, where they run, what they said last.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace mpigrad::elastic {

using Words = std::vector<std::string>;

bool under_slurm();
std::vector<std::string> allocated_hosts();  // by Slurm
std::string host_name();
int cores_here();  // that this process may use

// UsageError: there is no such program, in a folder of $PATH where the name has none. Launchers tell that in words of their own,
// once for each rank.
void require_program(const std::string& name);
// For a program that starts ranks and is one process: what a launcher of it has left in the environment is not theirs. UsageError
// by the first of several ranks; the others get false, and are to end with 2.
bool leave_launcher(const std::string& program);

// Names of hosts become words of ssh, mpiexec and srun: one that begins with '-' would be an option, and options run commands.
// UsageError: a name has other characters than letters, digits and . - _ : [ ], perhaps after USER@; it begins with '-'; a
// bracket has no partner; it is there twice.
void require_host_names(const std::vector<std::string>& hosts);
// NODE of NODE:RANKS, as mpiexec takes it; else the name itself.
std::string without_ranks(const std::string& host);
bool is_this_host(const std::string& host);
// Words that succeed if {host} is alive: by srun under Slurm, else by ssh.
std::string default_probe();
// UsageError: the ranks would start on a host that does not exist. `launcher`: the user's own; empty: the default one. Under
// Slurm the default one starts ranks on hosts of the allocation only. Else a host must be known to the name service or answer to
// `probe` within so many seconds; with a launcher that does not use {hosts} nothing is asked. Takes less than 10 s.
void require_known_hosts(const std::vector<std::string>& hosts, const std::string& launcher, const std::string& probe,
                         double limit);

// Whether a command has an option, and its value, as `--out run` or `--out=run`; none: it is not there.
bool has_option(const Words& command, const std::string& option);
std::optional<std::string> value_of(const Words& command, const std::string& option);
// Another value of an option; added where it is not there.
Words with_value(Words command, const std::string& option, const std::string& value);

// The last line of what a program has printed into a file that says something, without what launchers say behind it.
std::string last_line(const std::filesystem::path& output);

}  // namespace mpigrad::elastic
