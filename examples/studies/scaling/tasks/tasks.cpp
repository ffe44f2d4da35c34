#include "examples/studies/scaling/tasks/task.h"
#include "framework/base/joined.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::scaling {
namespace {

struct Entry {
  std::string sentence;
  Task (*make)(const TaskOptions&);
};

const std::map<std::string, Entry>& entries() {
  static const std::map<std::string, Entry> result{
      {"quadratic", {"a noisy quadratic whose gradient noise scale is known", quadratic}},
      {"lattice", {"defects in images of crystals, by a convolutional network", lattice}},
      {"lattice-norm", {"the same, by a network with batch norm", lattice_norm}},
      {"folding", {"contact maps of folding chains through a code of 16 numbers, by an autoencoder", folding}},
      {"contact-maps", {"contact maps of simulated chains, by the published variational autoencoder", contact_maps}},
      {"lattice-27", {"27 classes of simulated lattices of 85 x 120 pixels, by a ResNet-18", lattice_27}},
      {"images", {"classes of a folder of images, by a ResNet-50", images}},
      {"contrastive", {"which two images show the same crystal, by embeddings compared within a worker's batch", contrastive}},
  };
  return result;
}

}  // namespace

const std::map<std::string, std::string>& task_names() {
  static const auto result = [] {
    std::map<std::string, std::string> names;
    for (const auto& [name, entry] : entries()) names.emplace(name, entry.sentence);
    return names;
  }();
  return result;
}

Task make_task(const std::string& name, const TaskOptions& options) {
  const auto found = entries().find(name);
  if (found == entries().end()) {
    std::vector<std::string> names;
    for (const auto& [each, entry] : entries()) names.push_back(each);
    throw tool::UsageError(fmt::format("there is no task '{}', but {}", name, joined(names, ", ")));
  }
  return found->second.make(options);
}

}  // namespace mpigrad::scaling
