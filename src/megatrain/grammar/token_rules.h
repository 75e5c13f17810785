// Which tokens a grammar allows. One set of rules serves all answers to the same grammar: states and masks are kept.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "megatrain/grammar/grammar_states.h"
#include "megatrain/grammar/token_constraint.h"
#include "megatrain/grammar/token_trie.h"

namespace megatrain {

// Used by one thread at a time, with its constraints.
class TokenRules {
 public:
  // `end_ids` may follow where the grammar may end.
  TokenRules(Grammar grammar, std::shared_ptr<const TokenTrie> trie, std::set<int32_t> end_ids);

 private:
  friend class GrammarConstraint;
  static constexpr size_t kMostMasks = 256;
  static constexpr size_t kStatesToKeep = 4096, kPlacesToKeep = 1 << 20;  // between two tokens

  // What may come after a state. Throws Error(bad_input) like GrammarStates::step(), and if nothing may.
  const TokenSet& mask(int32_t state);
  // Returns the state's number, a new one if there were too many others.
  int32_t make_room(int32_t state);

  GrammarStates states_;
  int64_t generation_ = 0;  // of the states: numbers of an older one are no longer valid
  std::shared_ptr<const TokenTrie> trie_;
  std::set<int32_t> end_ids_;
  std::unordered_map<int32_t, TokenSet> masks_;  // by state
};

class GrammarConstraint final : public TokenConstraint {
 public:
  explicit GrammarConstraint(std::shared_ptr<TokenRules> rules) : rules_(std::move(rules)) {}

  const TokenSet& allowed() override;
  void accept(int32_t id) override;
  bool complete() const override { return complete_; }

 private:
  void find_state();

  std::shared_ptr<TokenRules> rules_;
  std::string text_;  // so far
  int64_t generation_ = -1;
  int32_t state_ = 0;
  bool complete_ = false;
};

}  // namespace megatrain
