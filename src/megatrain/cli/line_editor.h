// Line editing with a history, by libedit.
#pragma once

#include <csignal>
#include <memory>
#include <string>

namespace megatrain {

class LineEditor {
 public:
  // Needs a terminal. `interrupted` is set by a signal handler.
  explicit LineEditor(const volatile std::sig_atomic_t* interrupted);
  ~LineEditor();

  enum class Got { line, part, pasted_part, interrupt, end };
  // Reads the next line without its line end and adds it to the history. `part`: the message continues on the next
  // line, because this one is inside a paste or ends in a typed backslash, which is removed. `pasted_part`: a part that
  // also began with a paste.
  Got read(const std::string& prompt, std::string& line);

 private:
  struct Editor;
  std::unique_ptr<Editor> editor_;
};

}  // namespace megatrain
