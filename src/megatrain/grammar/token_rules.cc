#include "megatrain/grammar/token_rules.h"

#include <utility>
#include <vector>

#include "megatrain/base/error.h"

namespace megatrain {

TokenRules::TokenRules(Grammar grammar, std::shared_ptr<const TokenTrie> trie, std::set<int32_t> end_ids)
    : states_(std::move(grammar)), trie_(std::move(trie)), end_ids_(std::move(end_ids)) {}

int32_t TokenRules::make_room(int32_t state) {
  if (states_.count() <= kStatesToKeep && states_.places() <= kPlacesToKeep) return state;
  ++generation_;
  masks_.clear();
  return states_.forget_others(state);
}

const TokenSet& TokenRules::mask(int32_t state) {
  if (const auto known = masks_.find(state); known != masks_.end()) return known->second;
  if (masks_.size() >= kMostMasks) masks_.clear();
  states_.allow_work();
  TokenSet set(trie_->vocabulary());
  const std::vector<TokenTrie::Node>& nodes = trie_->nodes();
  std::vector<int32_t> path = {state};  // by depth: the state behind the node
  for (size_t i = 1; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const int32_t next = states_.step(path[node.depth - 1u], node.byte);
    if (next == GrammarStates::kDead) {
      i = static_cast<size_t>(node.end);
      continue;
    }
    path.resize(node.depth);
    path.push_back(next);
    for (int32_t t = 0; t < node.tokens; ++t) set.add(trie_->tokens()[static_cast<size_t>(node.first_token + t)]);
    ++i;
  }
  if (states_.accepts(state)) {
    for (const int32_t id : end_ids_)
      if (id >= 0 && id < trie_->vocabulary()) set.add(id);
  }
  if (set.empty())
    fail_input("the model's vocabulary has no token with which the answer could go on; leave response_format out");
  return masks_.emplace(state, std::move(set)).first->second;
}

// States may have been forgotten for the sake of other answers: then the text is read once more.
void GrammarConstraint::find_state() {
  if (generation_ == rules_->generation_) return;
  state_ = rules_->states_.first();
  for (const char byte : text_) {
    state_ = rules_->make_room(state_);
    rules_->states_.allow_work();
    state_ = rules_->states_.step(state_, static_cast<uint8_t>(byte));
    ensure(state_ != GrammarStates::kDead, "an answer's text is of its grammar");
  }
  generation_ = rules_->generation_;
}

const TokenSet& GrammarConstraint::allowed() {
  find_state();
  state_ = rules_->make_room(state_);
  generation_ = rules_->generation_;
  return rules_->mask(state_);
}

void GrammarConstraint::accept(int32_t id) {
  find_state();
  rules_->states_.allow_work();
  for (const char byte : rules_->trie_->text_of(id)) {
    state_ = rules_->states_.step(state_, static_cast<uint8_t>(byte));
    ensure(state_ != GrammarStates::kDead, "an accepted token was allowed");
  }
  text_ += rules_->trie_->text_of(id);
  complete_ = rules_->states_.accepts(state_) && !rules_->states_.continues(state_);
}

}  // namespace megatrain
