// The page at /: a conversation with the model in a browser, over the same endpoints as every client.
#pragma once

namespace megatrain {

extern const char* const kChatPage;

}  // namespace megatrain
