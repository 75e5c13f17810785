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

// Keeps in `dataset.files` the split that `use` asks for: train, or validation and otherwise test. The others go to
// `dataset.left_out`. Changes nothing if no name mentions a split. Error(bad_input) if the split is missing.
void keep_split(const std::string& folder, DatasetUse use, Dataset& dataset);

}  // namespace megatrain
