// What a trainer's rules work with: the given keys, and the list of translations so far.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "megatrain/foreign/translate.h"

namespace megatrain {

class ForeignReader {
 public:
  ForeignReader(const ForeignTrainer& trainer, const ForeignKeys& given, bool theirs, const std::set<std::string>& own,
                const std::string& file)
      : trainer_(trainer), given_(given), theirs_(theirs), own_(own), file_(file) {}

  std::vector<Translation> run(std::vector<std::string>& problems);

  // Whether the file is in the trainer's format, so that its defaults apply.
  bool theirs() const { return theirs_; }
  // Whether this key of ours is given.
  bool own(const char* key) const { return own_.count(key) != 0; }

  bool is_given(const char* name) const { return given_.count(name) != 0; }
  // The key if it is given with a value; otherwise nullptr.
  const Foreign* find(const char* name) const;
  bool flag(const char* name) const { return is_given(name) && foreign_flag(name, given_.at(name)); }
  double number(const char* name, double standard) const;
  int64_t count(const char* name, int64_t standard) const;
  std::string text(const char* name, const char* standard) const;
  // The translation that sets this key of ours so far; nullptr if there is none.
  const Translation* translated(const char* key) const;
  const ForeignKeys& given() const { return given_; }
  const std::string& file() const { return file_; }  // for messages about keys that are not given

  // The key with its value or default, as shown to the user.
  std::string shown(const std::string& name, const char* standard) const;

  // Adds a translation of `from`. `standard` is its default, shown when it is not given.
  Translation& add(const std::string& from, const char* standard, std::string key, std::string text,
                   std::string note = "");
  // If the key is given, records why it has no effect.
  void idle(const std::string& name, const std::string& why);
  // Records that the key has no effect, and warns of what is different from there.
  void differs(const std::string& name, const std::string& why, std::string warning);
  // Records a rule of theirs that no key expresses.
  void rule(const char* theirs, const char* key, const char* text, const char* note = "");
  // Refuses values other than `accepted`, and records why those have no effect.
  void expect(const char* name, const std::vector<std::string>& accepted, const char* otherwise, const char* why);

  // Runs a rule and collects its error, so that later rules still run and all problems are reported together.
  void attempt(const std::function<void()>& rule);

 private:
  void rename(const RenamedKey& each);
  bool is_translated(const std::string& name) const;  // whether a rule has read this key of theirs

  const ForeignTrainer& trainer_;
  const ForeignKeys& given_;
  const bool theirs_;
  const std::set<std::string>& own_;
  const std::string& file_;
  std::vector<Translation> out_;
  std::vector<std::string> problems_;
};

}  // namespace megatrain
