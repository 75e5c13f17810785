// One JSON object to one sample: which columns hold what, in each form of dataset.
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
    continuation,  // `text`, of which the part from `answer` on is trained
    document,
  };
  Kind kind = Kind::conversation;
  nlohmann::ordered_json messages, tools;
  std::string text;
  size_t answer = 0;
};

// The form of a dataset with the names of its columns settled.
class SampleForm {
 public:
  // By the keys of `first`, in what the dataset leaves open. Nothing where they are no form's.
  static std::optional<SampleForm> settle(DatasetForm form, const DatasetColumns& columns,
                                          const nlohmann::ordered_json& first);

  DatasetForm form() const { return form_; }

  // Columns that are read because the first sample has them, under no name of the form's own.
  std::vector<std::string> found_columns() const;
  // A column of a sample is read; `has_template`: of the model.
  bool reads(std::string_view column, bool has_template) const;

  // It is the column of tools.
  bool is_tools(std::string_view column) const { return column == names_.tools; }
  // It is the column of the system message, and the sample's conversation begins with another one, which is used.
  bool leaves_system(std::string_view column, const nlohmann::ordered_json& object) const;
  // What of a sample training would pass over: pictures, film, sound, or where the form was detected, preferences;
  // empty: nothing.
  std::string misfit(const nlohmann::ordered_json& object, bool has_template) const;

  // Error(bad_input) where the object does not fit. `has_template`: of the model; without one only documents and
  // {"prompt", "completion"} of texts can be read.
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
  bool detected_ = false;  // by the first sample; otherwise the dataset names it
  DatasetColumns names_;   // none empty but those the form does not have
  std::vector<RoleWord> roles_;
  bool chat_only_ = false;  // prompt form: the two texts do not read on as one
  std::vector<std::string> found_;
};

// Some text stands in it, at any depth.
bool carries_text(const nlohmann::ordered_json& value);

// What samples may look like, for messages.
std::string known_forms();

// `"a", "b", ... (12 in all)`
std::string keys_of(const nlohmann::ordered_json& object);

}  // namespace megatrain
