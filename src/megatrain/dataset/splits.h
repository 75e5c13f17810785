// Which split of a folder's files a dataset is: the names say so, by the rules of Hugging Face's `datasets`.
#pragma once

#include <string>
#include <vector>

#include "megatrain/dataset/dataset.h"

namespace megatrain {

// Files of one split; a file whose name has two splits' words is of both.
struct Split {
  std::string name;  // "train", "validation", "test"; of shards (data/NAME-00000-of-00001.jsonl) any NAME
  std::vector<std::string> files;
};

// The splits that the names of `files`, which lie in `folder`, speak of; none: no name has a split's word. The first
// of these rules that any file fits decides for all: shards in data/, words in names of folders, words in names of
// files. A file that does not fit it is of no split. Unlike in `datasets`, words may be in upper case: Test.jsonl would
// be trained on there.
std::vector<Split> splits_of(const std::string& folder, const std::vector<std::string>& files);

// Leaves in `dataset.files` those of the split that `use` asks for: train, or validation, else test. The others go to
// `dataset.left_out`. Nothing changes where names speak of no split. Error(bad_input) where that split is missing.
void keep_split(const std::string& folder, DatasetUse use, Dataset& dataset);

}  // namespace megatrain
