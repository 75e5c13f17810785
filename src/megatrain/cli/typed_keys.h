// The characters of a terminal, for a line editor: a signal ends the wait for one, a paste is text and no command.
#pragma once

#include <csignal>
#include <optional>
#include <string>
#include <string_view>

namespace megatrain {

// A terminal that was told kMarkPastes puts marks around what is pasted into it.
inline constexpr std::string_view kMarkPastes = "\x1b[?2004h", kMarkNoPastes = "\x1b[?2004l";

class TypedKeys {
 public:
  enum class Got { character, end, interrupt, resumed };

  // `interrupted` is set by the handler of a signal. While the object lives it watches SIGCONT.
  explicit TypedKeys(const volatile std::sig_atomic_t* interrupted);
  ~TypedKeys();
  TypedKeys(const TypedKeys&) = delete;
  TypedKeys& operator=(const TypedKeys&) = delete;

  // Reads what was typed while the terminal was not raw yet, where ctrl-D is an end and no character.
  void take_typed_ahead();

  // The next character of standard input, U+FFFD for bytes that are none. Keys that the editor has no use for are left
  // out. A paste is read whole first, so that none of it comes between two lines. In it an end of a line comes behind a
  // backslash, as people type a line that goes on, but for one at the very end, which is left out as control characters
  // are; a tab comes behind a ctrl-V, by which an editor takes it as it is. `resumed`: the process was stopped and goes
  // on, on a terminal that others have used.
  Got next(wchar_t& character);

 private:
  bool take_unread(char& byte);
  Got read_byte(char& byte);
  std::optional<char> byte_at_once();
  std::string rest_of_key();
  bool obey_key();
  void paste(wchar_t character);
  void forget_paste();

  const volatile std::sig_atomic_t* interrupted_;
  std::string unread_;    // bytes that were read, and are to be taken
  std::wstring waiting_;  // characters of a paste
  size_t given_ = 0;      // of these
  bool pasting_ = false;
  struct sigaction before_ {};
};

}  // namespace megatrain
