#pragma once
// The folder of one training's copies on a disk of a node. Other users may share the disk, and a training may have ended without
// removing its folder.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "framework/base/own_files.h"
#include "models/train/restart/training_name.h"

namespace mpigrad {

// The note of every copy that has the training's name.
inline constexpr const char* training_note = "training";

std::filesystem::path local_folder(const std::filesystem::path& disk, const std::string& training);

// The right to read and write copies in a folder: it is this user's, no other user may change it, and it is this training's. Its
// file ".training" says so, and which host and folder of results it is of. As long as the object or its process lives, others
// know that the folder is in use (flock); all ranks of a node have one.
class LocalFolder {
 public:
  // Makes the folder, with the mode 0700. Errors: those of framework/base/own_files.h; another training's folder.
  LocalFolder(const std::filesystem::path& folder, const TrainingName& training);

 private:
  Descriptor mark_;
};
// Checks a folder without making anything: the Errors are those of LocalFolder. A folder that is not there is no Error.
void require_local_folder(const std::filesystem::path& folder, const TrainingName& training);

// Removes the folder and the files in it. Files that cannot be removed stay. No Error.
void remove_local_folder(const std::filesystem::path& folder);

// Looks on a disk of this node for folders that trainings of this user have left. A folder is removed where its training has come
// to its end: no process of it lives here, and its folder of results has finished (`finished` says so), has another training's
// name or none, or is gone and was not renamed. Any other may still be resumed and stays; so does every folder whose path of
// results means another place than it did when the copies were made, as in another container. Folders of other users and of
// living trainings are left alone, and `own` is. Returns a sentence for each folder that was removed or may be in the way, and
// one for all folders of other hosts, which stay. What cannot be looked at or removed is no Error.
std::vector<std::string> clear_local_folders(const std::filesystem::path& disk, const std::string& own,
                                             const std::function<bool(const std::filesystem::path& results)>& finished);

}  // namespace mpigrad
