// What a trainer's rules work with: the keys that were given, and the list of what they became.
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

  // The file is one of the trainer's, so its defaults hold.
  bool theirs() const { return theirs_; }
  // A key of ours is given.
  bool own(const char* key) const { return own_.count(key) != 0; }

  bool is_given(const char* name) const { return given_.count(name) != 0; }
  // Given with a value; else nullptr.
  const Foreign* find(const char* name) const;
  bool flag(const char* name) const { return is_given(name) && foreign_flag(name, given_.at(name)); }
  double number(const char* name, double standard) const;
  int64_t count(const char* name, int64_t standard) const;
  std::string text(const char* name, const char* standard) const;
  // What a key of ours is made of so far; nullptr: nothing.
  const Translation* translated(const char* key) const;
  const ForeignKeys& given() const { return given_; }
  const std::string& file() const { return file_; }  // for messages about what is not given

  // The value of a key, or its default, as it is shown.
  std::string shown(const std::string& name, const char* standard) const;

  // What `from` became; `standard` is its default, shown where it is not given.
  Translation& add(const std::string& from, const char* standard, std::string key, std::string text,
                   std::string note = "");
  // Says why a key asks for nothing, where it is given.
  void idle(const std::string& name, const std::string& why);
  // A rule of theirs that no key says.
  void rule(const char* theirs, const char* key, const char* text, const char* note = "");
  // Refuses what is none of `accepted`, and says why any of them asks for nothing.
  void expect(const char* name, const std::vector<std::string>& accepted, const char* otherwise, const char* why);

  // A problem with the keys ends neither the reading nor the rules after it: all are said at once.
  void attempt(const std::function<void()>& rule);

 private:
  void rename(const RenamedKey& each);

  const ForeignTrainer& trainer_;
  const ForeignKeys& given_;
  const bool theirs_;
  const std::set<std::string>& own_;
  const std::string& file_;
  std::vector<Translation> out_;
  std::vector<std::string> problems_;
};

}  // namespace megatrain
