// A dataset: its files, the form of their samples and the names of their columns.
//
// A sample is a conversation (messages, ShareGPT, Alpaca and prompt forms) or a document (text form). Files of samples
// are JSON Lines or one JSON array of objects; the first byte decides which. Any other file is text: one document, or
// one document per line if LLaMA-Factory's dataset_info.json names the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

enum class DatasetForm {
  detect,         // from the keys of the first sample; all later ones have to match
  messages,       // {"messages": [{"role", "content", ...}], "tools", "system"}
  sharegpt,       // {"conversations": [{"from", "value"}], "tools", "system"}
  alpaca,         // {"instruction", "input", "output", "system", "history": [[question, answer], ...]}
  alpaca_prompt,  // {"instruction", "input", "output"}, with Alpaca's own prompt and no chat template
  prompt,         // {"prompt", "completion"}, {"question", "answer"} ...: texts, or lists of messages
  text,           // {"text"}, or a text file
};

// The name of a form as written in configurations: "messages", ... Error(bad_config) for an unknown one.
DatasetForm dataset_form(std::string_view word);
std::string_view word_of(DatasetForm form);

inline constexpr std::string_view kNoColumn = "-";  // do not read this column, even if samples have it

// Column names; empty: the form's default.
struct DatasetColumns {
  std::string messages, role, content, system, tools;
  std::string prompt, query, response, history;
  std::string text;
  std::string user_tag, assistant_tag, system_tag, observation_tag, function_tag;  // the names of the roles
  std::string named_in = "columns";  // the key that sets them, for messages
};

// What a dataset is opened for. Decides which split of a folder is read (splits.h).
enum class DatasetUse { train, evaluate };

struct Dataset {
  std::string name;                      // for messages
  std::vector<std::string> files;        // in order
  std::vector<std::string> passed_over;  // files of the folder that are not read
  std::vector<std::string> no_files;     // other things not read: links to folders, pipes; each with its kind
  std::string split;                     // the split that `files` are; empty: the folder has none
  std::string split_by;                  // what the splits were read from: "file names"
  std::vector<std::string> left_out;     // the folder's files of other splits and of no split
  std::vector<std::string> held_out;     // files that are read although their names say validation or test
  DatasetForm form = DatasetForm::detect;
  bool text_lines = false;  // each line of a text file is a document
  DatasetColumns columns;
  double weight = 1;
  int64_t most = 0;          // use only the first samples; 0: all
  int64_t most_percent = 0;  // or this percentage of them
};

// A part of a dataset that has several. Empty: the default.
struct DatasetPart {
  std::string subset;  // a configuration of the dataset's card
  std::string split;   // any split, by its own name
};

// Opens a name in LLaMA-Factory's `info_directory`/dataset_info.json, otherwise a file, otherwise a folder, otherwise
// "Org/Name", a dataset in the Hugging Face cache.
//
// A folder that describes itself (described_splits.h) is read so. Any other is searched at any depth, in order of
// paths: its files of rows (JSON, CSV, TSV, Parquet, Arrow) are read or, if there are none, its texts. Skipped are
// - hidden files
// - files that describe datasets: dataset_info.json, dataset_infos.json, dataset_dict.json, state.json
// - other splits than the one `use` and `part` ask for, if file names mention splits (splits.h). If dataset_info.json
//   names the folder, all splits are read, as in LLaMA-Factory.
//
// Error(bad_input), which says what to do, if:
// - the path does not exist, or is of an unsupported type (file_kind.h)
// - a folder has rows of two kinds, or tables that are not read beside text, which would be the data's description
// - shards are missing (shards.h)
// - a link with the name of a data file is broken
Dataset open_dataset(const std::string& path_or_name, const std::string& info_directory = "",
                     DatasetUse use = DatasetUse::train, const DatasetPart& part = {});

// The validation split of a folder or a name of the hub, or its test split if there is none. Empty if it has neither.
std::optional<Dataset> open_held_out(const std::string& path_or_name, const std::string& info_directory,
                                     const std::string& subset);

// Error(bad_input) for a file that is text by its name but JSON by its first line.
void check_is_text(const std::string& path);

// One sentence about the entries of `passed_over` and `no_files` that may hold data; empty if there are none.
std::string passed_over_sentence(const Dataset& dataset);

// One sentence about the files of `left_out` or `held_out`; empty if there are none.
std::string split_sentence(const Dataset& dataset);

}  // namespace megatrain
