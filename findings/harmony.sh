# Shared by the scripts about openai-harmony: the library, and the vocabulary of gpt-oss, which is taken from a package that ships it. Sourced, not run.
# shellcheck shell=bash
. "$(dirname "$0")/common.sh"
packages openai-harmony==0.0.8
packages_alone litellm==1.110.2
mkdir vocabulary
cp venv/lib/python3*/site-packages/litellm/litellm_core_utils/tokenizers/fb374d419588a4632f3f557e76b4b70aebbca790 vocabulary/o200k_base.tiktoken
export TIKTOKEN_ENCODINGS_BASE=$work/vocabulary
