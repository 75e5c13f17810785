// Which split of a folder to use, decided by file names according to the rules of Hugging Face's `datasets`.
#pragma once

#include <string>
#include <vector>

#include "megatrain/dataset/dataset.h"

namespace megatrain {

// Files of one split. A file whose name has words of two splits is in both.
struct Split {
  std::string name;  // "train", "validation", "test"; for shards (data/NAME-00000-of-00001.jsonl) any NAME
  std::vector<std::string> files;
};

// The splits that the names of `files`, which are in `folder`, mention; empty if none does. Rules, of which the first
// that matches any file decides for all: shards in data/, words in folder names, words in file names. A file that does
// not match the rule is in no split. Unlike in `datasets`, words may be in upper case: there, Test.jsonl would be
// trained on.
std::vector<Split> splits_of(const std::string& folder, const std::vector<std::string>& files);

// All splits of a folder.
struct FolderSplits {
  std::vector<Split> splits;
  std::string by;                  // what says so, for messages: "file names"
  std::vector<std::string> whole;  // the files of a folder that describes itself and has no splits
};

// Whether there is a validation or test split.
bool has_held_out(const FolderSplits& splits);

// Sets `dataset.files` to the split of the name `asked` or, if that is empty, the one that `use` asks for: train, or
// validation and otherwise test. Files of `dataset` that are in other splits go to `dataset.left_out`. Without
// splits they are those of `all.whole` or, if that is empty, stay as they are. Error(bad_input) if the split is
// missing.
void keep_split(const std::string& folder, DatasetUse use, const std::string& asked, const FolderSplits& all,
                Dataset& dataset);

}  // namespace megatrain
