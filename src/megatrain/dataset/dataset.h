// What a dataset is: files of samples, the form they have, and what their columns are called.
//
// A sample is a conversation (messages, ShareGPT, Alpaca and prompt forms) or a document (text form). Files of samples
// are JSON Lines or one JSON array of objects, whichever their first byte says; any other file is text, a document (or,
// named in LLaMA-Factory's dataset_info.json, a document a line).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

enum class DatasetForm {
  detect,         // by the keys of the first sample; every later one has to fit
  messages,       // {"messages": [{"role", "content", ...}], "tools", "system"}
  sharegpt,       // {"conversations": [{"from", "value"}], "tools", "system"}
  alpaca,         // {"instruction", "input", "output", "system", "history": [[question, answer], ...]}
  alpaca_prompt,  // {"instruction", "input", "output"}, written with Alpaca's own prompt and no chat template
  prompt,         // {"prompt", "completion"}, {"question", "answer"} ...: texts, or lists of messages
  text,           // {"text"}, or a text file
};

// "messages", ...; a form's own word, as configs write it. Error(bad_config) for an unknown one.
DatasetForm dataset_form(std::string_view word);
std::string_view word_of(DatasetForm form);

inline constexpr std::string_view kNoColumn = "-";  // the column is not read, even where samples have it

// What columns are called; empty: the form's own name.
struct DatasetColumns {
  std::string messages, role, content, system, tools;
  std::string prompt, query, response, history;
  std::string text;
  std::string user_tag, assistant_tag, system_tag, observation_tag, function_tag;  // the words that stand for roles
  std::string named_in = "columns";                                                // what names them, for messages
};

// What a dataset is opened for; it decides which split of a folder is read (splits.h).
enum class DatasetUse { train, evaluate };

struct Dataset {
  std::string name;                      // for messages
  std::vector<std::string> files;        // in order
  std::vector<std::string> passed_over;  // files of the folder that are not read
  std::vector<std::string> no_files;     // what else is not read there: links to folders, pipes; each with what it is
  std::string split;                     // of the folder, that `files` are; empty: its names speak of none
  std::vector<std::string> left_out;     // the folder's files of other splits, and of none
  std::vector<std::string> held_out;     // files that are read though their names say validation or test
  DatasetForm form = DatasetForm::detect;
  bool text_lines = false;  // each line of a text file is a document
  DatasetColumns columns;
  double weight = 1;
  int64_t most = 0;          // the first samples that are used; 0: all
  int64_t most_percent = 0;  // or that part of them
};

// A name in LLaMA-Factory's `info_directory`/dataset_info.json, else a file, else a folder.
//
// Of a folder, at any depth and in order of their paths: the .jsonl, .jsonlines, .ndjson and .json files, or where
// there are none the .txt, .text, .md, .markdown, .rst and .tex files. Hidden ones are passed over, and so are the
// names that describe datasets (dataset_info.json, dataset_infos.json, dataset_dict.json, state.json). Where names
// speak of splits, the one that `use` asks for is read (splits.h); of a folder that dataset_info.json names all are, as
// in LLaMA-Factory.
//
// Error(bad_input) where nothing is there, or in a shape that is not read (.parquet, .gz, ...), with what to do; also
// of a folder that holds such files and text, but no JSON: the text would be the data's description. A folder is
// refused too where shards are missing (shards.h), or a link under the name of a data file leads nowhere.
Dataset open_dataset(const std::string& path_or_name, const std::string& info_directory = "",
                     DatasetUse use = DatasetUse::train);

// By its name, this file holds JSON samples; otherwise it is a document.
bool is_json_name(const std::string& path);

// Refuses a file that is text by its name and JSON Lines by its first line. Error(bad_input).
void check_is_text(const std::string& path);

// One sentence about what of `passed_over` and `no_files` may hold data; empty where there is nothing.
std::string passed_over_sentence(const Dataset& dataset);

// One sentence about the files of `left_out`, or of `held_out`; empty where there are none.
std::string split_sentence(const Dataset& dataset);

}  // namespace megatrain
