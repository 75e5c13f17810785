// Files of a model's directory that an export takes along as they stand: tokenizer, chat templates, licences.
//
// A model's directory may come from anywhere, so a link in it must not carry a private file into an export. Links are
// followed within the directory, and within models--Org--Name where it is a snapshot of Hugging Face's cache, which is
// made of links into ../../blobs; others are refused.
#pragma once

#include <string>
#include <vector>

namespace megatrain {

inline constexpr const char* kTemplateFile = "chat_template.jinja";
inline constexpr const char* kNamedTemplates = "additional_chat_templates";  // a folder of NAME.jinja

bool is_companion_name(const std::string& name);

// Names below `directory`, sorted; without templates where the export has its own. Throws Error(bad_input) for a link
// that leads elsewhere or nowhere, and for what is neither file nor folder.
std::vector<std::string> find_companions(const std::string& directory, bool templates);

// The bytes of one of them. It is checked again after it was opened, so that no link can be changed between.
std::string read_companion(const std::string& directory, const std::string& name);

}  // namespace megatrain
