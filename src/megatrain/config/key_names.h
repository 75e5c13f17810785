// What a run's file calls the keys of the configuration, for messages: a file of another trainer has names of its own.
#pragma once

#include <map>
#include <string>

namespace megatrain {

class KeyNames {
 public:
  // Another trainer's file says our `key`, by its key `theirs` (empty: by a rule that no key of theirs says), which is
  // given or has its default.
  void add(const std::string& key, const std::string& theirs, bool given);

  // "seq_len", or "sequence_len (seq_len)" where the file says it so.
  std::string operator()(const std::string& key) const;
  // How to give a key another value, in our words: "data.packing: true", or "--data.packing=true" where the file has
  // its own name for the key; the command line goes over that.
  std::string setting(const std::string& key, const std::string& value) const;

  bool is_theirs(const std::string& key) const { return theirs_.count(key) != 0; }
  // By a key of theirs that is given.
  bool is_given_there(const std::string& key) const;

  bool operator==(const KeyNames&) const = default;

 private:
  struct Theirs {
    std::string name;
    bool given = false;
    bool operator==(const Theirs&) const = default;
  };
  std::map<std::string, Theirs> theirs_;  // by our keys
};

}  // namespace megatrain
