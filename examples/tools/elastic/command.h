#pragma once
// Helpers for programs that start other programs: their words, the hosts, the last line of their output.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mpigrad::elastic {

using Words = std::vector<std::string>;

bool under_slurm();
std::vector<std::string> allocated_hosts();  // Slurm's
// "srun --mpi=TYPE", with the type that the MPI library of this build needs; "srun" if SLURM_MPI_TYPE is set or Slurm's default
// is right. Asks `srun --mpi=list`. UsageError: Slurm has no such type, so that each rank would be a run by itself.
std::string srun_of_this_mpi();
// `type`: "pmi2", ... or empty; `list`: what `srun --mpi=list` prints; empty: not known.
std::string srun_with_type(const std::string& type, const std::string& list);
// The mpiexec of the MPI library of this build, {ranks} at a time, where several MPIs are installed; `on_hosts`: with
// {ranks_per_host} on each of {hosts}. Asks `mpiexec --version`.
std::string mpiexec_of_this_mpi(bool on_hosts);
// `version`: what `mpiexec --version` prints; `library`: as mpi_library() says; `has`: is there a program of that name?
std::string mpiexec_for(std::string_view library, std::string_view version, bool on_hosts,
                        const std::function<bool(const char*)>& has);
std::string host_name();
int cores_here();  // that this process may use

// UsageError: no program of that name (a name without a folder is searched in $PATH). Checked here because launchers report it in
// their own words, once for each rank.
void require_program(const std::string& name);
// For a program that starts ranks and is itself one process: removes a launcher's variables from the environment, because the
// ranks must not see them. If several ranks of such a program were started, rank 0 throws a UsageError and the others get false
// and must end with exit code 2.
bool leave_launcher(const std::string& program);

// Names of hosts become words of ssh, mpiexec and srun: a name that begins with '-' would be an option, and options can run
// commands. UsageError: a name with characters other than letters, digits and . - _ : [ ], optionally after USER@; a name that
// begins with '-'; an unbalanced bracket; a name that occurs twice.
void require_host_names(const std::vector<std::string>& hosts);
// NODE of NODE:RANKS, as mpiexec takes it; otherwise the name itself.
std::string without_ranks(const std::string& host);
bool is_this_host(const std::string& host);
// Words of a command that succeeds if {host} is alive: by srun under Slurm, otherwise by ssh.
std::string default_probe();
// UsageError: the ranks would start on a host that does not exist. `launcher`: the user's own; empty: the default one. Under
// Slurm the default launcher starts ranks only on hosts of the allocation. Otherwise the name service must know a host, or the
// host must answer to `probe` within `limit` seconds; with a launcher that does not use {hosts} nothing is checked. Takes less
// than 10 s.
void require_known_hosts(const std::vector<std::string>& hosts, const std::string& launcher, const std::string& probe,
                         double limit);

// True if a command has an option, and the option's value, as `--out run` or `--out=run`; none: the option is absent.
bool has_option(const Words& command, const std::string& option);
std::optional<std::string> value_of(const Words& command, const std::string& option);
// Replaces the value of an option, or adds the option.
Words with_value(Words command, const std::string& option, const std::string& value);

// The grid that a trainer's command asks for: the value of --grid, of `--set grid.extents=...`, or of grid.extents in its recipe,
// a word that ends with .toml and is no option's value; none: the command names no grid. UsageError: the recipe cannot be read.
std::optional<std::string> grid_of(const Words& command);
// The command with --grid, instead of the grid that it asked for.
Words with_grid(const Words& command, const std::string& grid);

// The last meaningful line of a program's output in a file, without the lines that launchers add after it.
std::string last_line(const std::filesystem::path& output);

}  // namespace mpigrad::elastic
