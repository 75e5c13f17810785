// What the user's file calls the configuration keys, for messages: other trainers' files have their own names.
#pragma once

#include <map>
#include <string>

namespace megatrain {

class KeyNames {
 public:
  // Records that another trainer's file sets our `key` by its key `theirs`, which is given or a default. `theirs` is
  // empty if a rule of that trainer sets it without a key.
  void add(const std::string& key, const std::string& theirs, bool given);

  // "seq_len", or "sequence_len (seq_len)" if the file calls it so.
  std::string operator()(const std::string& key) const;
  // How to set a key, for messages: "data.packing: true", or "--data.packing=true" if the file has its own name for the
  // key, since the command line overrides the file.
  std::string setting(const std::string& key, const std::string& value) const;

  bool is_theirs(const std::string& key) const { return theirs_.count(key) != 0; }
  // Whether their file gives the key explicitly.
  bool is_given_there(const std::string& key) const;

  bool operator==(const KeyNames&) const = default;

 private:
  struct Theirs {
    std::string name;
    bool given = false;
    bool operator==(const Theirs&) const = default;
  };
  std::map<std::string, Theirs> theirs_;  // by our key
};

}  // namespace megatrain
