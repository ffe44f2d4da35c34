#pragma once
// The results of a search, as text and as files.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "examples/studies/hpo/search.h"

namespace mpigrad::hpo {

// Trials from the best to the worst, failed ones with the reason, the command that repeats the best one.
std::string table_of(const Search& search);
nlohmann::ordered_json to_json(const Search& search);
// hpo.json and hpo.png in the search's folder: the metric against time and against each parameter.
void write_files(const Search& search);

}  // namespace mpigrad::hpo
