// Lines that a person types: edited, with a history, by libedit.
#pragma once

#include <csignal>
#include <memory>
#include <string>

namespace megatrain {

class LineEditor {
 public:
  // On a terminal. `interrupted` is set by the handler of a signal.
  explicit LineEditor(const volatile std::sig_atomic_t* interrupted);
  ~LineEditor();

  enum class Got { line, part, pasted_part, interrupt, end };
  // The next line without its end, which joins the history. `part`: the next line belongs to it, because it is a line
  // of a paste, or because a backslash was typed at its end, which is left out. `pasted_part`: a part whose beginning
  // was pasted as well.
  Got read(const std::string& prompt, std::string& line);

 private:
  struct Editor;
  std::unique_ptr<Editor> editor_;
};

}  // namespace megatrain
