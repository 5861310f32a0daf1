#pragma once
// One declaration a family file; the rows stand in registry.cc.

#include "loader/arch/family.h"

namespace forge::loader {

PortableModel build_command_r(const Gguf& file);
PortableModel build_deepseek2(const Gguf& file);
PortableModel build_gemma(const Gguf& file);
PortableModel build_gemma2(const Gguf& file);
PortableModel build_gemma3(const Gguf& file);
PortableModel build_glm4(const Gguf& file);
PortableModel build_gpt_oss(const Gguf& file);
PortableModel build_granite(const Gguf& file);
PortableModel build_llama(const Gguf& file);
PortableModel build_olmo2(const Gguf& file);
PortableModel build_olmoe(const Gguf& file);
PortableModel build_phi3(const Gguf& file);
PortableModel build_qwen2(const Gguf& file);
PortableModel build_qwen2moe(const Gguf& file);
PortableModel build_qwen3(const Gguf& file);
PortableModel build_qwen3moe(const Gguf& file);
PortableModel build_smollm3(const Gguf& file);
PortableModel build_stablelm(const Gguf& file);
PortableModel build_starcoder2(const Gguf& file);

}  // namespace forge::loader
