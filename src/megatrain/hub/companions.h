// Files of a model directory that an export copies unchanged: tokenizer, chat templates, licences.
//
// A model directory may come from anywhere, so a link in it must not smuggle a private file into an export. Links are
// followed only within the directory. In a snapshot of the Hugging Face cache, which consists of links into
// ../../blobs, they are followed within models--Org--Name. Other links are refused.
#pragma once

#include <string>
#include <vector>

namespace megatrain {

inline constexpr const char* kTemplateFile = "chat_template.jinja";
inline constexpr const char* kNamedTemplates = "additional_chat_templates";  // a folder of NAME.jinja files

bool is_companion_name(const std::string& name);

// Names relative to `directory`, sorted; without templates if the export has its own. Throws Error(bad_input) for a
// link that leads outside or nowhere, and for anything that is neither a file nor a folder.
std::vector<std::string> find_companions(const std::string& directory, bool templates);

// The contents of one of them. It is checked again after opening, so that a link cannot be swapped in between.
std::string read_companion(const std::string& directory, const std::string& name);

}  // namespace megatrain
