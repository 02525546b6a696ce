// Parameters and functions of all kernel launches (launch_list.h).
#pragma once

#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/delta_net_launch.h"
#include "kernels/cuda/elementwise_launch.h"
#include "kernels/cuda/experts_launch.h"
#include "kernels/cuda/kv_launch.h"
#include "kernels/cuda/kv_view_launch.h"
#include "kernels/cuda/launch_list.h"
#include "kernels/cuda/link_pace_launch.h"
#include "kernels/cuda/matmul/matmul_launch.h"
#include "kernels/cuda/matmul/prompt_launch.h"
#include "kernels/cuda/sampling_launch.h"
#include "kernels/cuda/view_pages_launch.h"
