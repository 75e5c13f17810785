// What an answer may be, token by token: the seam between the decode loop and whatever limits answers.
#pragma once

#include <cstdint>

#include "megatrain/grammar/token_set.h"

namespace megatrain {

// One per answer. Used by one thread at a time.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // The tokens that may come next, end tokens included; never empty. Valid until the next call. Throws Error(bad_input)
  // if there is none: the vocabulary cannot write what the answer must be.
  virtual const TokenSet& allowed() = 0;
  // The next token, which is allowed.
  virtual void accept(int32_t id) = 0;
  // The answer is complete, and no token may follow except end tokens.
  virtual bool complete() const = 0;
};

}  // namespace megatrain
