/* vk_ceiling_read.comp: reads n vectors of 16 bytes once, eight in flight an invocation; vk_ceiling.c times it. Writes only
 * what no reading gives: without it the loads would be dropped. */
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x = 256) in;
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer vectors { uvec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer result { uvec4 sum; };
layout(push_constant, std430) uniform push_block {
  uvec2 from, to; /* addresses */
  uint n;         /* a multiple of 8 * invocations of the dispatch */
} pc;

void main() {
  vectors from = vectors(pc.from);
  uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  uvec4 sum = uvec4(0);
  [[dont_unroll]] for (uint i = gl_GlobalInvocationID.x; i < pc.n; i += 8 * stride) {
    uvec4 v[8];
    [[unroll]] for (uint k = 0; k < 8; k++) v[k] = from.at[i + k * stride];
    [[unroll]] for (uint k = 0; k < 8; k++) sum ^= v[k];
  }
  if (sum == uvec4(1, 2, 3, 4)) result(pc.to).sum = sum;
}
