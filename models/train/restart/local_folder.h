#pragma once
// The folder with the copies of one training on a local disk of a node. Other users may share the disk, and a training may have
// ended without removing its folder.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "framework/base/own_files.h"
#include "models/train/restart/training_name.h"

namespace mpigrad {

// The name of the note, in every copy, that contains the training's name.
inline constexpr const char* training_note = "training";

std::filesystem::path local_folder(const std::filesystem::path& disk, const std::string& training);

// Checks and marks a folder for the copies of a training: it belongs to this user, no other user may change it, and it belongs to
// this training. Its file ".training" has the name of the training, the host and the folder of results. While the object exists
// and its process runs, a lock (flock) shows that the folder is in use; all ranks of a node have such an object.
class LocalFolder {
 public:
  // Creates the folder, with the mode 0700. Errors: those of framework/base/own_files.h; a folder of another training.
  LocalFolder(const std::filesystem::path& folder, const TrainingName& training);

 private:
  Descriptor mark_;
};
// Checks a folder without creating anything: the Errors are those of LocalFolder. A folder that does not exist is not an Error.
void require_local_folder(const std::filesystem::path& folder, const TrainingName& training);

// Removes the folder and the files in it. Files that cannot be removed stay. Throws no Error.
void remove_local_folder(const std::filesystem::path& folder);

// Searches a disk of this node for folders that trainings of this user have left. Removes the folder of a training that is over:
// no process of it runs here, and its folder of results has finished (as `finished` returns), has the name of another training or
// none, or was removed and not renamed. All other trainings may still be resumed and their folders stay; so does every folder
// whose path of results refers to another place than when the copies were made, as in another container. Folders of other users,
// of running trainings and `own` are not touched. Returns a sentence for each folder that was removed or may be in the way, and
// one for all folders of other hosts, which stay. Failures to read or remove a folder are not Errors.
std::vector<std::string> clear_local_folders(const std::filesystem::path& disk, const std::string& own,
                                             const std::function<bool(const std::filesystem::path& results)>& finished);

}  // namespace mpigrad
