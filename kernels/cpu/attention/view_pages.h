// The ops of kernels/view_pages.h on the CPU, for the op tables. Layout of pages: page_layout.h.
#pragma once

#include "kernels/view_pages.h"

namespace slipstream::cpu {

void view_pages_write_scalar(ExecRef exec, const PagesWriteArgs& args);
void view_pages_write_avx2(ExecRef exec, const PagesWriteArgs& args);  // gives the bits of view_pages_write_scalar()

void view_pages_attention_scalar(ExecRef exec, const PagesAttentionArgs& args);
void view_pages_attention_avx2(ExecRef exec, const PagesAttentionArgs& args);
void view_pages_attention_avx512(ExecRef exec, const PagesAttentionArgs& args);
void view_pages_attention_avx512_vnni(ExecRef exec, const PagesAttentionArgs& args);

}  // namespace slipstream::cpu
