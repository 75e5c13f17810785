// Converts a JSON object to a sample: which columns hold what, in each form of dataset.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/dataset/dataset.h"
#include "megatrain/io/json.h"

namespace megatrain {

struct Sample {
  enum class Kind {
    conversation,  // for the chat template
    continuation,  // `text`, trained from `answer` on
    document,
  };
  Kind kind = Kind::conversation;
  nlohmann::ordered_json messages, tools;
  std::string text;
  size_t answer = 0;
};

// The form of a dataset with its column names resolved.
class SampleForm {
 public:
  // Resolves what the dataset leaves open from the keys of `first`. Empty if no form has these keys.
  static std::optional<SampleForm> settle(DatasetForm form, const DatasetColumns& columns,
                                          const nlohmann::ordered_json& first);

  DatasetForm form() const { return form_; }

  // Columns that are read because the first sample has them, although the form does not name them.
  std::vector<std::string> found_columns() const;
  // Whether a column is read. `has_template`: the model has a chat template.
  bool reads(std::string_view column, bool has_template) const;

  // Whether it is the tools column.
  bool is_tools(std::string_view column) const { return column == names_.tools; }
  // Whether it is the system column and is ignored, because the conversation begins with a different system message.
  bool leaves_system(std::string_view column, const nlohmann::ordered_json& object) const;
  // What training would ignore in a sample: images, video, audio or, if the form was detected, preferences. Empty if
  // there is nothing.
  std::string misfit(const nlohmann::ordered_json& object, bool has_template) const;

  // Error(bad_input) if the object does not fit. Without a chat template (`has_template`) only documents, {"prompt",
  // "completion"} texts and the form alpaca_prompt can be read.
  Sample read(nlohmann::ordered_json object, bool has_template) const;

 private:
  using Json = nlohmann::ordered_json;
  struct RoleWord {
    std::string word, role;
  };

  void settle_pair(const DatasetColumns& columns, const Json& first);
  void settle_roles();
  Sample read_messages(Json& object) const;
  Sample read_alpaca(Json& object) const;
  Sample read_alpaca_prompt(Json& object) const;
  Sample read_prompt(Json& object, bool has_template) const;
  Sample read_document(Json& object) const;
  Json read_list(Json& list, const std::string& column) const;
  Json read_message(Json& message, size_t number) const;
  void add_system(Json& object, Json& messages) const;
  Json take_tools(Json& object) const;
  std::string take_question(Json& prompt, Json& object) const;

  DatasetForm form_ = DatasetForm::detect;
  bool detected_ = false;  // from the first sample; otherwise the dataset names the form
  DatasetColumns names_;   // empty only for columns that the form does not have
  std::vector<RoleWord> roles_;
  bool chat_only_ = false;  // prompt form: the two texts do not continue each other
  std::vector<std::string> found_;
};

// Whether the value holds text at any depth.
bool carries_text(const nlohmann::ordered_json& value);

// What samples may look like, for messages.
std::string known_forms();

// `"a", "b", ... (12 in all)`
std::string keys_of(const nlohmann::ordered_json& object);

}  // namespace megatrain
