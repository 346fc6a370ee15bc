/* vk_pipeline_internal.h: the handles that recording needs. Included by vk_*.c only. */
#ifndef RUNTIME_VK_PIPELINE_INTERNAL_H
#define RUNTIME_VK_PIPELINE_INTERNAL_H

#include "vk_api.h"
#include "vk_pipeline.h"

/* A module's pipeline after vk_pipelines_wait returned MOE_OK for it; the layout that all of them share. */
VkPipeline vk_pipelines_get(const struct vk_pipelines *pipelines, uint32_t index);
VkPipelineLayout vk_pipelines_get_layout(const struct vk_pipelines *pipelines);

#endif
