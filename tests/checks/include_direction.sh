#!/usr/bin/env bash
# The include direction of the house: tools -> draft -> runtime -> offload -> kernels, never back; tests may see all, nobody
# sees tests or tools but themselves (tests see tools); CUDA headers only under kernels/cuda. Within tools: base ->
# machine -> engine, terminal -> options -> cli -> chat, plan, bench -> lab, read from below; rooms between two arrows do
# not include each other, and a folder of tools that is not in this list is refused. So what opens, plans and generates
# never knows who asked: the engine takes options as structs and reports by callbacks. Of the machine it does not include
# the environment, nor what searches for models. The other folders of tools enter it by one header, engine/engine.h; only
# tests of a part of the engine include the header of that part. What people say becomes ids in one place (engine/prompt_encoding.cpp), which alone calls
# Tokenizer::encode_prompt().
# runtime/text, which knows nothing of models and files, includes only itself and kernels/base.
# Within runtime: text -> model, cache, experts -> formats, pass -> view -> loop -> ranks -> plan, session; each includes only what
# precedes it. So a model knows no file format, and the code that computes it does not know the devices that share it.
# Within draft: control -> tables -> sources -> models -> papers, tree; each includes only what precedes it and files of
# draft/ itself, of which drafter.h, sources_drafter.h, source_set.h and replay.h are above all folders.
# A folder of runtime or draft that this check does not know is refused.
# Kernels find "gpu.cuh", the device dialect, by the include path.
# usage: include_direction.sh ROOT        one line per offence, exit code 1 if there is any
#        include_direction.sh --self-test builds small wrong trees and demands that each offence is seen
set -euo pipefail

check() {
    local root=$1 folders=() folder
    for folder in kernels offload runtime draft tools tests; do
        if [ -d "$root/$folder" ]; then folders+=("$folder"); fi
    done
    if [ ${#folders[@]} -eq 0 ]; then
        echo "$root: none of the six folders is here; name the project's root"
        return 1
    fi
    (cd "$root" && find "${folders[@]}" -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
        sort -z | xargs -0 -r awk '
        BEGIN {
            rank["kernels"] = 1; rank["offload"] = 2; rank["runtime"] = 3
            rank["draft"] = 4; rank["tools"] = 5; rank["tests"] = 6
            room["base"] = 1; room["machine"] = 2; room["engine"] = room["terminal"] = 3; room["options"] = 4
            floor["runtime/text"] = 1; floor["runtime/model"] = floor["runtime/cache"] = floor["runtime/experts"] = 2
            floor["runtime/formats"] = floor["runtime/pass"] = 3; floor["runtime/view"] = 4; floor["runtime/loop"] = 5
            floor["runtime/ranks"] = 6; floor["runtime/plan"] = floor["runtime/session"] = 7
            floor["draft/control"] = 1; floor["draft/tables"] = 2; floor["draft/sources"] = 3
            floor["draft/models"] = 4; floor["draft/papers"] = floor["draft/tree"] = 5
            room["cli"] = 5; room["chat"] = room["plan"] = room["bench"] = room["serve"] = 6; room["lab"] = 7
        }
        /^[ \t]*#[ \t]*include[ \t]*["<]/ {
            included = $0
            sub(/^[ \t]*#[ \t]*include[ \t]*["<]/, "", included)
            sub(/[">].*$/, "", included)
            quoted = ($0 ~ /include[ \t]*"/)
            n_own = split(FILENAME, own, "/")
            n = split(included, part, "/")
            why = ""
            own_folder = own[1] "/" own[2]; folder = part[1] "/" part[2]
            inside = n_own > 2 && n > 1 && part[1] == own[1] && (own[1] == "runtime" || own[1] == "draft")
            if (included ~ /(^|\/)\.\.(\/|$)/) why = "leaves its folder by .."
            else if (included ~ /^\//) why = "is an absolute path"
            else if (n > 1 && (part[1] in rank) && rank[part[1]] > rank[own[1]]) why = part[1] " is above " own[1]
            else if (own[1] == "tools" && n_own > 2 && !(own[2] in room))
                why = "from tools/" own[2] ", whose place this check does not know"
            else if (own[1] == "tools" && n_own > 2 && part[1] == "tools" && n > 2 && part[2] != own[2] &&
                     (!(part[2] in room) || room[part[2]] > room[own[2]])) why = "tools/" part[2] " is above tools/" own[2]
            else if (own[1] == "tools" && n_own > 2 && part[1] == "tools" && n > 2 && part[2] != own[2] &&
                     room[part[2]] == room[own[2]]) why = "tools/" part[2] " and tools/" own[2] " do not include each other"
            else if (own[1] == "tools" && own_folder != "tools/engine" && folder == "tools/engine" &&
                     included != "tools/engine/engine.h") why = "the engine is entered by tools/engine/engine.h alone"
            else if (FILENAME ~ /^tools\/engine\// && included ~ /^tools\/machine\/(environment|model_lookup|model_stores)\.h$/)
                why = "the engine knows no environment and searches for no model"
            else if (FILENAME ~ /^runtime\/text\// && quoted && included !~ /^(runtime\/text|kernels\/base)\//)
                why = "runtime/text includes only itself and kernels/base"
            else if (inside && !(own_folder in floor)) why = "from " own_folder ", whose place this check does not know"
            else if (inside && n > 2 && folder != own_folder && (!(folder in floor) || floor[folder] >= floor[own_folder]))
                why = folder " is not below " own_folder
            else if (inside && included ~ /^draft\/(drafter|sources_drafter|source_set|replay)\.h$/)
                why = "is above all folders of draft"
            else if (included == "gpu.cuh" && FILENAME ~ /^kernels\/cuda\/((attention|matmul)\/)?[^\/]*\.(cu|cuh)$/) why = ""
            else if (quoted && n == 1 && own[1] != "tests") why = "wants its path from the root of the project"
            else if (FILENAME !~ /^kernels\/cuda\/card\// && included ~ /^(cuda|cublas|nccl|cooperative_groups)[A-Za-z_]*\.h$/)
                why = "CUDA headers live in kernels/cuda/card only"
            if (why != "") { printf "%s:%d: %s %s\n", FILENAME, FNR, included, why; bad = 1 }
        }
        FILENAME ~ /^(draft|tools)\// && FILENAME != "tools/engine/prompt_encoding.cpp" && /(\.|->)encode_prompt\(/ {
            printf "%s:%d: prompts become ids in tools/engine/prompt_encoding.cpp alone\n", FILENAME, FNR
            bad = 1
        }
        END { exit bad }')
}

tree=
judged=0
# expect VERDICT FILE INCLUDE: a tree with that one line must be refused, or pass.
expect() {
    local verdict=pass
    tree=$(mktemp -d)
    mkdir -p "$tree/$(dirname "$2")"
    printf '// head\n#include %s\n' "$3" >"$tree/$2"
    check "$tree" >/dev/null || verdict=refused
    rm -rf "$tree"
    if [ "$verdict" != "$1" ]; then
        echo "self-test: $2 with #include $3: wanted $1, found $verdict"
        exit 1
    fi
    judged=$((judged + 1))
}

if [ "${1:-}" != --self-test ]; then
    check "${1:?name the root of the project}"
    exit
fi
expect refused kernels/a.h '"offload/b.h"'
expect refused kernels/cpu/a.cpp '"runtime/b.h"'
expect refused offload/a.cpp '"runtime/formats/b.h"'
expect refused runtime/models/a.cpp '"draft/b.h"'
expect refused runtime/a.cpp '<draft/b.h>'
expect refused draft/a.cpp '"tools/b.h"'
expect refused tools/a.cpp '"tests/support/b.h"'
expect refused offload/a.cpp '  "../runtime/b.h"'
expect refused runtime/a.cpp '<cuda_runtime.h>'
expect refused runtime/a.cpp '"sampler.h"'
expect refused runtime/a.cpp '"/usr/include/b.h"'
expect pass runtime/a.cpp '"kernels/device.h"'
expect pass runtime/a.cpp '"runtime/b.h"'
expect pass tools/a.cpp '"tools/b.h"'
expect pass tests/tools/a.cpp '"tools/b.h"'
expect pass kernels/cuda/card/a.cu '<cuda_runtime.h>'
expect refused kernels/cuda/a.cu '<cuda_runtime.h>'
expect refused tests/cuda/a.cpp '<cuda_runtime.h>'
expect pass kernels/cuda/a.cu '"gpu.cuh"'
expect pass kernels/cuda/matmul/a.cuh '"gpu.cuh"'
expect refused kernels/cuda/host/a.cu '"gpu.cuh"'
expect refused kernels/cuda/a.cpp '"gpu.cuh"'
expect refused runtime/a.cu '"gpu.cuh"'
expect pass kernels/a.h '<vector>'
for above in cli chat plan bench; do
    expect refused tools/engine/a.cpp "\"tools/$above/b.h\""
    expect refused tools/options/a.h "\"tools/$above/b.h\""
    expect pass tools/$above/a.cpp '"tools/engine/engine.h"'
    expect refused tools/$above/a.cpp '"tools/engine/b.h"'
    expect refused tools/engine/engine.h "\"tools/$above/b.h\""
done
for outer in terminal options; do
    expect refused tools/engine/engine.h "\"tools/$outer/b.h\""
    expect pass tools/cli/a.cpp "\"tools/$outer/b.h\""
done
for searches in environment model_lookup model_stores; do
    expect refused tools/engine/a.cpp "\"tools/machine/$searches.h\""
    expect pass tools/options/a.cpp "\"tools/machine/$searches.h\""
done
expect pass tools/engine/a.cpp '"tools/machine/host.h"'
expect pass tools/engine/a.cpp '"tools/base/b.h"'
expect pass tools/options/a.h '"tools/engine/engine.h"'
expect refused tools/options/a.h '"tools/engine/engine_options.h"'
expect refused tools/lab/a.cpp '"tools/engine/session.h"'
expect pass tests/tools/a.cpp '"tools/engine/kept_splits.h"'
expect refused tools/terminal/a.cpp '"tools/engine/b.h"'
expect refused tools/base/a.cpp '"tools/machine/b.h"'
encode='<vector>
auto ids = tokenizer.encode_prompt(text, SpecialTokens::AsText);'
expect refused tools/chat/a.cpp "$encode"
expect pass tools/engine/prompt_encoding.cpp "$encode"
expect refused tools/machine/a.cpp '"tools/options/b.h"'
expect pass tools/terminal/a.cpp '"tools/machine/b.h"'
expect refused tools/cli/a.cpp '"tools/lab/b.h"'
expect refused tools/bench/a.cpp '"tools/lab/b.h"'
expect pass tools/lab/views/a.cpp '"tools/bench/b.h"'
expect pass tools/engine/a.cpp '"tools/engine/b.h"'
expect refused tools/engine/a.cpp '"tools/serve/b.h"'
expect refused tools/serve/a.cpp '"tools/engine/b.h"'
expect refused tools/bench/a.cpp '"tools/plan/b.h"'
expect pass tools/bench/a.cpp '"tools/cli/b.h"'
expect refused tools/cli/a.cpp '"tools/chat/b.h"'
expect pass tools/chat/a.cpp '"tools/chat/b.h"'
expect refused runtime/text/a.cpp '"runtime/formats/b.h"'
expect refused runtime/text/chat/a.h '"kernels/device.h"'
expect refused runtime/text/tokenizer/a.cpp '"offload/mapped_file.h"'
expect pass runtime/text/chat/a.cpp '"runtime/text/tokenizer/b.h"'
expect pass runtime/text/a.cpp '"kernels/base/error.h"'
expect pass runtime/formats/a.cpp '"runtime/text/b.h"'
for below in pass model cache view formats loop; do expect refused runtime/$below/a.h '"runtime/ranks/b.h"'; done
expect refused runtime/model/a.h '"runtime/formats/b.h"'
expect refused runtime/experts/a.h '"runtime/pass/b.h"'
expect pass runtime/ranks/a.h '"runtime/experts/b.h"'
expect refused runtime/pass/a.cpp '"runtime/view/b.h"'
expect refused runtime/loop/a.cpp '"runtime/plan/b.h"'
expect refused runtime/session/a.cpp '"runtime/plan/b.h"'
expect refused runtime/model/a.cpp '"runtime/serve/b.h"'
expect refused runtime/serve/a.cpp '"runtime/model/b.h"'
expect pass runtime/formats/a.h '"runtime/model/b.h"'
expect pass runtime/model/layers/a.h '"runtime/model/b.h"'
expect refused draft/sources/a.h '"draft/papers/b.h"'
expect refused draft/sources/a.h '"draft/tree/b.h"'
expect refused draft/tables/a.cpp '"draft/sources/b.h"'
expect refused draft/control/a.cpp '"draft/tables/b.h"'
expect refused draft/papers/a.cpp '"draft/tree/b.h"'
expect refused draft/sources/a.cpp '"draft/serve/b.h"'
expect refused draft/serve/a.cpp '"draft/sources/b.h"'
for above in drafter sources_drafter source_set replay; do expect refused draft/tree/a.cpp "\"draft/$above.h\""; done
expect pass draft/drafter.cpp '"draft/sources_drafter.h"'
expect pass draft/source_set.cpp '"draft/tree/b.h"'
expect pass draft/sources/a.cpp '"draft/log_odds.h"'
expect pass draft/tree/a.cpp '"draft/sources/b.h"'
for above in ranks plan session; do expect pass runtime/$above/a.h '"runtime/ranks/b.h"'; done
expect pass tools/engine/a.cpp '"runtime/ranks/b.h"'
echo "$judged small trees judged as they should be"
